"""source: the model as trained, with which every method is compared."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.report import Report, untouched_report
from realistic_tta.core.settings import Settings


@dataclass(frozen=True)
class Source(Settings):
    """The method source has no hyperparameters.

    >>> from realistic_tta import Source, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), Source())
    """


class SourceModel(AdaptedModel):
    """The model as trained, in eval mode, with the interface of an adapted model."""

    name = "source"
    settings_type = Source
    compiles = True

    def __init__(self, model: nn.Module, settings: Source) -> None:
        super().__init__(model, settings)
        self._register_state()

    def _initial_state(self) -> State:
        return {"batches": self._zero_batches()}

    def _predict(self, batch: Batch) -> Prediction:
        return self._after(self._run(batch))

    def freeze(self) -> nn.Module:
        """A copy of the model."""
        return copy.deepcopy(self._model)

    def report(self) -> Report:
        """Every normalization layer, all of them skipped."""
        reason = "source uses the statistics from training"
        return untouched_report(self.name, int(self._batches), self._model, reason)
