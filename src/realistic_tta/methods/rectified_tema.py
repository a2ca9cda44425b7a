"""rectified_tema: the paper's method, TEMA with layer-wise rectification (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

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
from realistic_tta.functional.channel_statistics import ChannelStatistics, mix
from realistic_tta.functional.momentum import momentum_for
from realistic_tta.functional.rectification import divergence, source_weights, update_prior
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import FixedStatistics, RectifiedMovingAverage, used_layers

TOLERANCE = 0.05  # of a source weight, which goes from 0 to 0.5


@dataclass(frozen=True)
class RectifiedTema(Settings):
    """The hyperparameters of rectified_tema.

    Args:
        passes: 2 is Algorithm 1; 1 predicts in the first pass, with the prior, at half the cost.
        second_pass: "always", or "when_needed": the first pass stands if the prior that it mixed
            with is within 0.05, in every layer, of the weights that follow from the batch. A
            compiled graph always takes both passes.
        momentum: as for tema.
        classes: as for tema.
        source_batch_size: as for tema.
        start: as for tema.

    >>> from realistic_tta import RectifiedTema, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), RectifiedTema(classes=10, passes=1))
    """

    passes: Literal[1, 2] = 2
    second_pass: Literal["always", "when_needed"] = "always"  # noqa: S105
    momentum: Momentum | Literal["auto"] = "auto"
    classes: Count | None = None
    source_batch_size: Count = 128  # CIFAR; 256 is usual on ImageNet
    start: Literal["standard", "source"] = "standard"


class RectifiedTemaModel(AdaptedModel):
    """TEMA, mixed in each layer with the source statistics by how far the two diverge.

    Its state adds `prior`, the moving average of the layers' source weights (the paper's A').
    """

    name = "rectified_tema"
    settings_type = RectifiedTema
    compiles = True
    takes_process_group = True
    _settings: RectifiedTema

    def __init__(self, model: nn.Module, settings: RectifiedTema) -> None:
        model, layers = AdaptiveLayers.replace(model, self.name)
        super().__init__(model, settings)
        self._layers = layers
        self._classes = settings.classes
        if settings.momentum == "auto" and settings.classes is None:
            self._classes = count_classes(model)
        self._register_state()

    def _initial_state(self) -> State:
        state = initial_target(self._layers, from_source=self._settings.start == "source")
        return state | {"prior": torch.zeros_like(state["source_weight"])}

    def _predict(self, batch: Batch) -> Prediction:
        """Measures every layer, weighs its source by relative divergence, and predicts."""
        state, layers = self._state(), self._layers
        momentum = momentum_for(
            self._settings.momentum, self._classes, self._settings.source_batch_size, batch.size
        )

        # Stage 1: pass 1 measures each layer's input, with the layers before it mixed by the prior.
        before = target_of(state)
        target = ChannelStatistics(before.mean.clone(), before.variance.clone())
        rules = self._moving_averages(target, before, momentum, state["prior"])
        with layers.following(rules):
            outputs = self._run(batch)

        # Stage 2: relative divergence, over the layers that the batch went through.
        used = used_layers(rules)
        divergences = divergence(layers.source, target, layers.channels)
        weights = source_weights(divergences, used)

        # Stage 4: the prior follows the weights, and stays as it was in layers not used.
        prior = update_prior(state["prior"], weights, used)
        source_weight = weights if self._settings.passes == 2 else prior

        # Stage 3: pass 2 predicts, an ordinary inference with fixed statistics.
        if self._settings.passes == 2 and self._needs_pass_2(weights - state["prior"], used):
            mixed = mix(layers.source, target, layers.per_channel(source_weight))  # Eq. 6 and 7
            with layers.following([FixedStatistics(each) for each in layers.split(mixed)]):
                outputs = self._run(batch)

        after = target_after(layers, rules, state, source_weight, target)
        return self._after(outputs, prior=prior, **after)

    def _moving_averages(
        self, average: ChannelStatistics, before: ChannelStatistics, momentum: float, prior: Tensor
    ) -> list[RectifiedMovingAverage]:
        """The rules of pass 1; they update `average` in place."""
        source = self._layers.source
        per_layer = zip(
            *map(self._layers.split, (average, before, source)), prior.unbind(), strict=True
        )
        return [
            RectifiedMovingAverage(
                current, previous, momentum, self._group, source=of_source, source_weight=weight
            )
            for current, previous, of_source, weight in per_layer
        ]

    def _needs_pass_2(self, change: Tensor, used: list[int] | None) -> bool:
        """Whether pass 1 mixed with other weights than the batch calls for. change: (layer,)."""
        if torch.compiler.is_compiling() or self._settings.second_pass == "always":  # noqa: S105
            return True
        return bool(((change if used is None else change[used]).abs() > TOLERANCE).any())

    def freeze(self) -> nn.Module:
        """A plain copy of the original model with the rectified statistics."""
        return freeze_target(self._model, self._layers, self._state(), mix)

    def report(self) -> Report:
        """Every layer with its divergence and source weight."""
        return target_report(self.name, self._model, self._layers, self._state())
