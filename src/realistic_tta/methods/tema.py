"""tema: a moving average of target statistics in place of the source's (paper, Eq. 3 to 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.classes import count_classes
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Count, Momentum, Settings
from realistic_tta.core.target_state import (
    freeze_target,
    initial_target,
    target_after,
    target_of,
    target_report,
)
from realistic_tta.functional.channel_statistics import ChannelStatistics, interpolate
from realistic_tta.functional.momentum import momentum_for
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import MovingAverage


@dataclass(frozen=True)
class Tema(Settings):
    """The hyperparameters of tema.

    Args:
        momentum: the weight of the current batch in the average, as in torch; "auto" chooses it by
            Eq. 5 from the size of each batch.
        classes: the number of classes, for "auto"; by default the outputs of the last Linear layer.
        source_batch_size: the batch size of the model's training, for "auto".
        start: where the average starts: "standard", at mean 0 and variance 1, as the authors'
            program, or "source", at the source statistics, which is better on short streams.

    >>> from realistic_tta import Tema, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), Tema(classes=10, start="source"))
    """

    momentum: Momentum | Literal["auto"] = "auto"
    classes: Count | None = None
    source_batch_size: Count = 128  # CIFAR; 256 is usual on ImageNet
    start: Literal["standard", "source"] = "standard"


class TemaModel(AdaptedModel):
    """Normalizes with the moving average, the current batch included, in one pass."""

    name = "tema"
    settings_type = Tema
    compiles = True
    takes_process_group = True
    _settings: Tema

    def __init__(self, model: nn.Module, settings: Tema) -> None:
        from_source = settings.start == "source"
        model, layers = AdaptiveLayers.replace(model, self.name, needs_source=from_source)
        super().__init__(model, settings)
        self._layers = layers
        self._classes = settings.classes
        if settings.momentum == "auto" and settings.classes is None:
            self._classes = count_classes(model)
        self._register_state()

    def _initial_state(self) -> State:
        return initial_target(self._layers, from_source=self._settings.start == "source")

    def _predict(self, batch: Batch) -> Prediction:
        state = self._state()
        momentum = momentum_for(
            self._settings.momentum, self._classes, self._settings.source_batch_size, batch.size
        )
        before = target_of(state)
        average = ChannelStatistics(before.mean.clone(), before.variance.clone())
        rules = [
            MovingAverage(current, previous, momentum, self._group)
            for current, previous in zip(*map(self._layers.split, (average, before)), strict=True)
        ]
        with self._layers.following(rules):
            outputs = self._run(batch)
        after = target_after(self._layers, rules, state, source_weight=0.0, target=average)
        return self._after(outputs, **after)

    def freeze(self) -> nn.Module:
        """A plain copy of the original model with the moving average as its statistics."""
        return freeze_target(self._model, self._layers, self._state(), interpolate)

    def report(self) -> Report:
        """Every layer with its divergence and source weight."""
        return target_report(self.name, self._model, self._layers, self._state())
