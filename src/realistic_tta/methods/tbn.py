"""tbn: the current batch's statistics in place of the source's (Nado 2020; also "BN-1")."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Settings
from realistic_tta.core.target_state import (
    freeze_target,
    initial_target,
    target_after,
    target_report,
)
from realistic_tta.functional.channel_statistics import interpolate
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import BatchStatistics


@dataclass(frozen=True)
class TBN(Settings):
    """The method tbn has no hyperparameters.

    >>> from realistic_tta import TBN, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), TBN())
    """


class TBNModel(AdaptedModel):
    """Normalizes each batch with its own mean and biased variance, as torch in train mode.

    Nothing is carried from batch to batch; the last batch's statistics are kept for `freeze`.
    """

    name = "tbn"
    settings_type = TBN
    compiles = True
    takes_process_group = True

    def __init__(self, model: nn.Module, settings: TBN) -> None:
        model, layers = AdaptiveLayers.replace(model, self.name, needs_source=False)
        super().__init__(model, settings)
        self._layers = layers
        self._register_state()

    def _initial_state(self) -> State:
        return initial_target(self._layers)

    def _predict(self, batch: Batch) -> Prediction:
        rules = [BatchStatistics(self._group) for _ in self._layers.layers]
        with self._layers.following(rules):
            outputs = self._run(batch)
        after = target_after(self._layers, rules, self._state(), source_weight=0.0)
        return self._after(outputs, **after)

    def freeze(self) -> nn.Module:
        """A plain copy of the original model with the statistics of the last batch."""
        return freeze_target(self._model, self._layers, self._state(), interpolate)

    def report(self) -> Report:
        """Every layer with its divergence and source weight."""
        return target_report(self.name, self._model, self._layers, self._state())
