"""The paper's method, whole: TEMA with layer-wise rectification (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from realistic_tta.errors import SettingError
from realistic_tta.functional.channel_statistics import ChannelStatistics, mix
from realistic_tta.functional.rectification import divergence, source_weights, update_prior
from realistic_tta.layers.robust_rules import MixedWithSource, RobustMovingAverage
from realistic_tta.layers.statistics_rules import (
    FixedStatistics,
    RectifiedMovingAverage,
    StatisticsRule,
    reached,
)

from .batch import Batch
from .batch_norm_method import BatchNormMethod
from .momentum_settings import MomentumSettings

TOLERANCE = 0.05  # of a source weight, which goes from 0 to 0.5


@dataclass(frozen=True)
class RectifiedTemaSettings(MomentumSettings):
    """passes: 2 is Algorithm 1; 1 predicts in the first pass, with the prior, at half the cost.

    second_pass: "always", or "when_needed": the first pass stands where the prior that it mixed
        with is within 0.05, in every layer, of the weights that the batch calls for. A compiled
        graph cannot decide, and takes both passes.
    """

    passes: int = 2
    second_pass: Literal["always", "when_needed"] = "always"  # noqa: S105

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passes not in (1, 2):
            raise SettingError(f"passes is {self.passes!r}; expected 1 or 2")
        if self.second_pass not in ("always", "when_needed"):
            raise SettingError(
                f'second_pass is {self.second_pass!r}; expected "always" or "when_needed"'
            )


class RectifiedTema(BatchNormMethod):
    """TEMA, mixed in each layer with the source's statistics by how far the two diverge.

    prior: the moving average of the layers' source weights (the paper's A'), (layer,); 0 at first.
    """

    name = "rectified_tema"
    compiles = True
    takes_replicas = True
    settings_type = RectifiedTemaSettings
    settings: RectifiedTemaSettings
    combine = staticmethod(mix)
    prior: Tensor

    def __init__(self, network: nn.Module, settings: RectifiedTemaSettings) -> None:
        super().__init__(network, settings)
        self.register_buffer("prior", self.source_weight.new_zeros(len(self.layers)))

    def predict(self, batch: Batch) -> Any:
        """Measure every layer; weigh its source by relative divergence; predict; remember."""
        # Stage 1: pass 1 measures each layer's input, the layers before it mixed with the prior.
        momentum = self.settings.momentum_for(batch.size)
        target, averages = self.carry_on()
        rules = self._rules(averages, momentum)
        outputs = self.run_with(batch, rules)
        self.check_finite(target)

        # Stage 2: relative divergence, over the layers that the batch went through.
        layers = reached(rules)
        divergences = divergence(self.source, target, self.channels)
        if layers is None:
            weights = source_weights(divergences)
            prior = update_prior(self.prior, weights)  # stage 4
            source_weight = weights if self.settings.passes == 2 else prior
        else:
            weights = source_weights(divergences[layers])
            prior, source_weight = self.prior.clone(), self.source_weight.clone()
            prior[layers] = update_prior(prior[layers], weights)
            source_weight[layers] = weights if self.settings.passes == 2 else prior[layers]

        # Stage 3: pass 2 predicts, an ordinary inference with fixed statistics.
        if self.settings.passes == 2 and self._is_needed(source_weight, layers):
            outputs = self.run_with(batch, self._rectified(target, source_weight))

        self.remember(
            target_mean=target.mean,
            target_variance=target.variance,
            source_weight=source_weight,
            prior=prior,
        )
        return outputs

    def _rules(
        self, averages: Sequence[ChannelStatistics], momentum: float
    ) -> list[StatisticsRule]:
        """Those of pass 1."""
        before = self.kept_by_layer("target", self.target)
        source = self.kept_by_layer("source", self.source)
        layers = zip(averages, before, source, self.prior.unbind(), strict=True)
        if not self.settings.robust:
            return [
                RectifiedMovingAverage(average, previous, momentum, of_source, weight)
                for average, previous, of_source, weight in layers
            ]
        return [
            MixedWithSource(
                RobustMovingAverage(average, previous, momentum, of_source), of_source, weight
            )
            for average, previous, of_source, weight in layers
        ]

    def _is_needed(self, source_weight: Tensor, layers: list[int] | None) -> bool:
        """Whether pass 1 mixed with other weights than the batch calls for."""
        if torch.compiler.is_compiling() or self.settings.second_pass == "always":  # noqa: S105
            return True
        gap = source_weight - self.prior
        return bool((gap if layers is None else gap[layers]).abs().max() > TOLERANCE)

    def start(self) -> ChannelStatistics:
        """Mean 0 and variance 1, or the source's."""
        return self.source if self.settings.start == "source" else super().start()

    def reset(self) -> None:
        """Forgets everything seen, the prior too."""
        super().reset()
        self.prior.zero_()

    def _rectified(self, target: ChannelStatistics, source_weight: Tensor) -> list[FixedStatistics]:
        mixed = mix(self.source, target, self.by_channel(source_weight))  # Eq. 6 and 7
        return [FixedStatistics(statistics) for statistics in self.by_layer(mixed)]
