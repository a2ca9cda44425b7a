"""The paper's method, whole: TEMA with layer-wise rectification (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from realistic_tta.errors import SettingError
from realistic_tta.normalization.statistics_rules import (
    FixedStatistics,
    MovingAverage,
    RectifiedMovingAverage,
)
from realistic_tta.statistics.channel_statistics import ChannelStatistics, mix
from realistic_tta.statistics.rectification import divergence, source_weights, update_prior

from .batch import Batch
from .batch_norm_method import BatchNormMethod, reached
from .momentum_settings import MomentumSettings


@dataclass(frozen=True)
class RectifiedTemaSettings(MomentumSettings):
    """passes: 2 is Algorithm 1; 1 predicts in the first pass, with the prior, at half the cost."""

    passes: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passes not in (1, 2):
            raise SettingError(f"passes is {self.passes!r}; expected 1 or 2")


class RectifiedTema(BatchNormMethod):
    """TEMA, mixed in each layer with the source's statistics by how far the two diverge.

    prior: the moving average of the layers' source weights (the paper's A'), (layer,); 0 at first.
    """

    name = "rectified_tema"
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
        rules = [
            RectifiedMovingAverage(MovingAverage(previous, momentum), source, weight)
            for previous, source, weight in zip(
                self.by_layer(self.target), self.by_layer(self.source), self.prior, strict=True
            )
        ]
        outputs = self.run_with(batch, rules)
        target = self.measured(rules)

        # Stage 2: relative divergence, over the layers that the batch went through.
        layers = reached(rules)
        weights = source_weights(divergence(self.source, target, self.channels)[layers])
        prior, source_weight = self.prior.clone(), self.source_weight.clone()
        prior[layers] = update_prior(prior[layers], weights)  # stage 4
        source_weight[layers] = weights if self.settings.passes == 2 else prior[layers]

        # Stage 3: pass 2 predicts, an ordinary inference with fixed statistics.
        if self.settings.passes == 2:
            outputs = self.run_with(batch, self._rectified(target, source_weight))

        self.remember(
            target_mean=target.mean,
            target_variance=target.variance,
            source_weight=source_weight,
            prior=prior,
        )
        return outputs

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
