"""realistic: source and target statistics, mixed by how far chance explains their distance.

The default method. Every layer keeps two averages of the stream's statistics over images: a long
one, in which the weight of an image falls to a tenth within as many images as a training batch had,
and a short one over an eighth of that. Both include the variance between images, which tells how
uncertain an average is. The target gets half of the weight in the paper's mix with the source
(Eq. 7), or less: the less, the more of its distance from the source chance alone explains.

The distance between both averages tells two things. When the domain changes, most layers move, and
the short average replaces the past. When labels come in runs, the last layer moves most, again and
again; then few images are as good as one, and chance explains more.

It takes one pass, and the current batch counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import torch
from torch import Tensor, nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Count, Probability, Settings
from realistic_tta.core.target_state import (
    freeze_target,
    initial_target,
    target_after,
    target_report,
)
from realistic_tta.functional.channel_statistics import ChannelStatistics, mix
from realistic_tta.functional.shrinkage import (
    ImageWeights,
    chance_scale,
    fluctuation,
    per_layer,
    source_precision,
    unexplained,
)
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import PooledDistance, ShrunkImageAverage

LAST_WEIGHT = 0.1  # of an image one training batch ago: the threshold of the paper's Proposition 2
RECENT = 1 / 8  # the length of the short average, as a part of the long one's
SHIFT_RATIO = 4  # recent images so many times further from the past than by chance are a new domain


@dataclass(frozen=True)
class Realistic(Settings):
    """The hyperparameters of realistic.

    Args:
        source_batch_size: the batch size of the model's training. Target statistics rest on about
            as many images as the source statistics did in training.
        max_target_weight: the largest weight of the target in the mix with the source.

    >>> from realistic_tta import Realistic, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), Realistic(source_batch_size=256))
    """

    source_batch_size: Count = 128  # CIFAR; 256 is usual on ImageNet
    max_target_weight: Probability = 0.5  # the paper's bound between source and target


class RealisticModel(AdaptedModel):
    """Averages statistics over images, and shrinks them to the source.

    Its state adds, for the long and the short average, the `means`, (2, 1, all channels), and the
    `variances` over all values and between the images' means, (2, 2, all channels); the sums of the
    images' weights and of their squares, `weight` and `squared_weight`, (layer, 2);
    `correlation_time`, about how many images tell as much as one independent image, (); and the
    number of `images`.
    """

    name = "realistic"
    settings_type = Realistic
    compiles = True
    takes_process_group = True
    _settings: Realistic

    def __init__(self, model: nn.Module, settings: Realistic) -> None:
        model, layers = AdaptiveLayers.replace(model, self.name)
        super().__init__(model, settings)
        self._layers = layers
        self._register_state()

    def _initial_state(self) -> State:
        state = initial_target(self._layers, from_source=True)
        mean, variance = self._layers.source
        none = state["source_weight"].new_zeros(len(self._layers), 2)
        return state | {
            "means": mean.expand(2, 1, -1).clone(),
            "variances": torch.stack((variance, torch.zeros_like(variance))).repeat(2, 1, 1),
            "weight": none,
            "squared_weight": none.clone(),
            "correlation_time": state["source_weight"].new_ones(()),
            "images": self._zero_batches(),
        }

    def _predict(self, batch: Batch) -> Prediction:
        """One pass; each layer averages the batch in, and mixes the result with the source."""
        state, layers = self._state(), self._layers
        precision = source_precision(layers.source.variance, layers.per_channel(layers.channels))
        lengths = (window * self._settings.source_batch_size for window in (1, RECENT))
        decays = [LAST_WEIGHT ** (batch.size / length) for length in lengths]
        past, weights, correlation_time = self._past(state, precision, decays[0])
        weights = weights.after(batch.size, weights.total.new_tensor(decays))
        images = weights.images()[:, 0]
        chance_precision = precision * layers.per_channel(chance_scale(images, correlation_time))
        rules = list(
            map(
                ShrunkImageAverage,
                _split(past, layers.sizes),
                (1 - batch.size / weights.total)[:, :, None, None],
                layers.split(layers.source),
                precision.split(layers.sizes),
                chance_precision.split(layers.sizes),
                self._settings.max_target_weight * (images > 1),
                repeat(PooledDistance()),
                repeat(self._group),
            )
        )
        with layers.following(rules):
            outputs = self._run(batch)
        means, variances = self._averages_after(rules, state)
        target = ChannelStatistics(means[0, 0], variances[0, 0])
        return self._after(
            outputs,
            means=means,
            variances=variances,
            weight=layers.merge_where_used(rules, weights.total, state["weight"]),
            squared_weight=layers.merge_where_used(rules, weights.squares, state["squared_weight"]),
            correlation_time=correlation_time,
            images=state["images"] + batch.size,
            **target_after(layers, rules, state, _source_weights(rules, state), target),
        )

    def _past(
        self, state: State, precision: Tensor, decay: float
    ) -> tuple[ChannelStatistics, ImageWeights, Tensor]:
        """Both averages before the batch, the weights of their images, and the correlation time.

        A new domain moves most layers: if the median layer has moved, the short average replaces
        the long one, in part or in full. Another class in view moves the last layer more than the
        others: where that happens again and again, labels come in runs, and chance explains more.
        """
        averages = ChannelStatistics(state["means"], state["variances"])
        long, short = map(ChannelStatistics, averages.mean[:, 0], averages.variance)
        weights = ImageWeights(state["weight"], state["squared_weight"])
        images = weights.images()[:, 1]
        moved = fluctuation(long, short, precision, images, self._layers.channels)
        median, last = torch.nan_to_num(torch.stack((moved.nanmedian(), moved[-1])))
        time = state["correlation_time"]
        replaced = torch.nan_to_num(unexplained(SHIFT_RATIO * time.clamp_min(1), median))
        time = torch.lerp(time, last / median.clamp_min(1), (1 - decay) * (1 - replaced))
        weights = ImageWeights(*(torch.lerp(each, each[:, 1:], replaced) for each in weights))
        return mix(short, averages, replaced), weights, time

    def _averages_after(
        self, rules: Sequence[ShrunkImageAverage], state: State
    ) -> ChannelStatistics:
        """Both averages with the batch; unchanged in layers that are not used."""
        after = [rule.averages for rule in rules if rule.target]
        if len(after) < len(rules):
            old = _split(ChannelStatistics(state["means"], state["variances"]), self._layers.sizes)
            after = [r.averages if r.target else o for r, o in zip(rules, old, strict=True)]
        return ChannelStatistics(*(torch.cat(each, dim=-1) for each in zip(*after, strict=True)))

    def freeze(self) -> nn.Module:
        """A plain copy of the original model with the mixed statistics."""
        return freeze_target(self._model, self._layers, self._state(), mix)

    def report(self) -> Report:
        """The distance of the stream from the source, and every layer with its source weight."""
        state, layers = self._state(), self._layers
        used = state["weight"][:, 0] > 0
        report = target_report(self.name, self._model, layers, state, used=used.tolist())
        report = replace(report, images=int(state["images"]))
        if not report.images or report.images < 2:
            return report
        images = ImageWeights(state["weight"], state["squared_weight"]).images()[:, 0]
        scale = source_precision(layers.source.variance, layers.per_channel(layers.channels))
        shift = (state["target_mean"] - layers.source.mean).square()
        distance = per_layer(shift * scale, layers.channels)
        between = per_layer(state["variances"][0, 1] * scale, layers.channels)
        chance = between * chance_scale(images, state["correlation_time"])
        return replace(
            report,
            distance=distance[used].mean().sqrt().item(),
            chance=chance[used].mean().sqrt().item(),
            correlation_time=state["correlation_time"].clamp_min(1).item(),
        )


def _source_weights(rules: list[ShrunkImageAverage], state: State) -> Tensor:
    """The weight of the source in each layer, (layer,); 1 in layers that were not used."""
    unused = state["source_weight"].new_zeros(())
    return 1 - torch.stack([rule.target_weight if rule.target else unused for rule in rules])


def _split(averages: ChannelStatistics, sizes: list[int]) -> Iterator[ChannelStatistics]:
    """Both averages of each layer."""
    return map(ChannelStatistics, *(each.split(sizes, dim=-1) for each in averages))
