"""adapt_bn: source and batch statistics mixed by sample counts (Schneider 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.report import Report
from realistic_tta.core.settings import NonNegative, Settings
from realistic_tta.core.target_state import (
    freeze_target,
    initial_target,
    target_after,
    target_report,
)
from realistic_tta.functional.channel_statistics import interpolate
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import InterpolatedStatistics


@dataclass(frozen=True)
class AdaptBN(Settings):
    """The hyperparameters of adapt_bn.

    Args:
        pseudo_samples: the number of images that the source counts for (Schneider's N).

    >>> from realistic_tta import AdaptBN, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), AdaptBN(pseudo_samples=32))
    """

    pseudo_samples: NonNegative = 16  # Schneider 2020 give a range, no default


class AdaptBNModel(AdaptedModel):
    """Mixes source and batch statistics linearly, by the number of images in the batch.

    statistics = source_weight * source + (1 - source_weight) * batch
    source_weight = pseudo_samples / (pseudo_samples + images in the batch)
    """

    name = "adapt_bn"
    settings_type = AdaptBN
    compiles = True
    takes_process_group = True
    _settings: AdaptBN

    def __init__(self, model: nn.Module, settings: AdaptBN) -> None:
        model, layers = AdaptiveLayers.replace(model, self.name)
        super().__init__(model, settings)
        self._layers = layers
        self._register_state()

    def _initial_state(self) -> State:
        return initial_target(self._layers)

    def _predict(self, batch: Batch) -> Prediction:
        source_weight = self._settings.pseudo_samples / (self._settings.pseudo_samples + batch.size)
        sources = self._layers.split(self._layers.source)
        rules = [InterpolatedStatistics(each, source_weight, self._group) for each in sources]
        with self._layers.following(rules):
            outputs = self._run(batch)
        after = target_after(self._layers, rules, self._state(), source_weight)
        return self._after(outputs, **after)

    def freeze(self) -> nn.Module:
        """A plain copy of the original model with the statistics of the last batch."""
        return freeze_target(self._model, self._layers, self._state(), interpolate)

    def report(self) -> Report:
        """Every layer with its divergence and source weight."""
        return target_report(self.name, self._model, self._layers, self._state())
