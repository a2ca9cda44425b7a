"""alpha_bn: source and batch statistics mixed with a fixed weight (You 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Probability, Settings
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
class AlphaBN(Settings):
    """The hyperparameters of alpha_bn.

    Args:
        target_weight: the weight of the test batch; You 2021 call 1 minus this alpha.

    >>> from realistic_tta import AlphaBN, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), AlphaBN(target_weight=0.5))
    """

    target_weight: Probability = 0.1  # as the paper compares it


class AlphaBNModel(AdaptedModel):
    """Mixes source and batch statistics linearly, with the same weight for every batch.

    statistics = source_weight * source + (1 - source_weight) * batch
    source_weight = 1 - target_weight
    """

    name = "alpha_bn"
    settings_type = AlphaBN
    compiles = True
    takes_process_group = True
    _settings: AlphaBN

    def __init__(self, model: nn.Module, settings: AlphaBN) -> None:
        model, layers = AdaptiveLayers.replace(model, self.name)
        super().__init__(model, settings)
        self._layers = layers
        self._register_state()

    def _initial_state(self) -> State:
        return initial_target(self._layers)

    def _predict(self, batch: Batch) -> Prediction:
        source_weight = 1 - self._settings.target_weight
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
