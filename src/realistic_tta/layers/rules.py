"""Which statistics a layer normalizes with: one small class per rule.

Before a pass, a method hands every layer a rule with the numbers it needs. After the pass, the
method reads what the layer measured: `target`. A rule changes nothing outside itself, so a pass
that fails leaves no trace. To add a rule, write a class with a method `statistics`.

A layer may be used several times in one pass. All its inputs then count as one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from realistic_tta.functional.channel_statistics import (
    ChannelStatistics,
    advance_,
    interpolate,
    measure,
    mix,
    moving_average,
    pool,
    values_per_channel,
)
from realistic_tta.functional.shrinkage import TINY, image_statistics, unexplained

from .process_group import ProcessGroup


class StatisticsRule(Protocol):
    """Turns the inputs of a layer into the statistics that they are normalized with."""

    @property
    def min_values(self) -> int:
        """The number of values per channel that it needs; 0 if it does not look at the inputs."""
        ...

    @property
    def target(self) -> ChannelStatistics | None:
        """The layer's target statistics after the pass; None if the layer was not used."""
        ...

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The statistics to normalize these inputs with."""
        ...


class FixedStatistics:
    """The given statistics for any input: pass 2 of Algorithm 1."""

    min_values = 0
    target: ChannelStatistics | None = None

    def __init__(self, fixed: ChannelStatistics) -> None:
        self.fixed = fixed

    def statistics(self, inputs: Tensor) -> ChannelStatistics:  # noqa: ARG002 - same for any input
        """The given statistics."""
        return self.fixed


class _Measuring:
    """Measures the inputs, of all processes of a group; `target` pools all uses in one pass.

    correction: of the variance, as in `measure`.
    """

    correction: ClassVar[int]
    target: ChannelStatistics | None = None

    def __init__(self, group: ProcessGroup | None) -> None:
        self.group = group
        self.min_values = 2 if group is None else 0  # with a group, the others may have them
        self.uses: list[tuple[ChannelStatistics, int]] = []

    def measure(self, inputs: Tensor) -> ChannelStatistics:
        """The statistics of these inputs alone."""
        if self.group is None:
            found = measure(inputs, self.correction), values_per_channel(inputs)
        else:
            found = self.group.measure(inputs, self.correction)
        self.uses.append(found)
        self.target = pool(self.uses, self.correction)
        return found[0]


class BatchStatistics(_Measuring):
    """The batch's own mean and biased variance, as torch's BatchNorm in train mode (TBN)."""

    correction = 0

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The statistics of these inputs alone."""
        return self.measure(inputs)


class InterpolatedStatistics(_Measuring):
    """A linear mix of source and batch, with unbiased batch variance (alpha-BN, AdaptBN)."""

    correction = 1

    def __init__(
        self, source: ChannelStatistics, source_weight: float, group: ProcessGroup | None
    ) -> None:
        super().__init__(group)
        self.source = source
        self.source_weight = source_weight

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """source_weight * source + (1 - source_weight) * batch."""
        return interpolate(self.source, self.measure(inputs), self.source_weight)


class MovingAverage(_Measuring):
    """The moving average of the target statistics (TEMA, Eq. 3 and 4), unbiased variance.

    average: a copy of the average before this pass, which the rule updates in place.
    previous: the average before this pass.
    """

    correction = 1

    def __init__(
        self,
        average: ChannelStatistics,
        previous: ChannelStatistics,
        momentum: float,
        group: ProcessGroup | None,
    ) -> None:
        super().__init__(group)
        self.average = average
        self.previous = previous
        self.momentum = momentum

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The average, the current batch included."""
        if self.target is None and self.group is None:
            advance_(self.average, inputs, self.momentum)  # the usual case, in one or two calls
            self.count = values_per_channel(inputs)
        else:
            self._advance_by_all_uses(inputs)
        self.target = self.average
        return self.average

    def _advance_by_all_uses(self, inputs: Tensor) -> None:
        """All uses of the layer in this pass count as one batch, with one momentum."""
        if self.target is not None and not self.uses:  # undo the first use
            first = moving_average(self.previous, self.average, 1 / self.momentum)
            self.uses.append((first, self.count))
        self.measure(inputs)
        average = moving_average(self.previous, pool(self.uses, 1), self.momentum)
        for kept, new in zip(self.average, average, strict=True):
            kept.copy_(new)


class RectifiedMovingAverage(MovingAverage):
    """TEMA mixed with the source statistics (Eq. 6 and 7): pass 1 of Algorithm 1."""

    def __init__(
        self,
        average: ChannelStatistics,
        previous: ChannelStatistics,
        momentum: float,
        group: ProcessGroup | None,
        *,
        source: ChannelStatistics,
        source_weight: Tensor,
    ) -> None:
        super().__init__(average, previous, momentum, group)
        self.source = source
        self.source_weight = source_weight

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The mix of both; `target` is the average before mixing."""
        return mix(self.source, super().statistics(inputs), self.source_weight)


@dataclass
class PooledDistance:
    """The distance from the source, and what chance explains, summed over the layers of a pass.

    The layers share one object for each pass.
    """

    distance: Tensor | float = TINY
    chance: Tensor | float = 0.0

    def add(self, distance: Tensor, chance: Tensor) -> Tensor:
        """Adds a layer; returns the part of the sum that chance does not explain, from 0 to 1."""
        self.distance = distance + self.distance
        self.chance = chance + self.chance
        return unexplained(self.chance, self.distance)


@dataclass
class ShrunkImageAverage:
    """An average over images, shrunk to the source by how much chance explains: realistic's rule.

        distance = mean over channels of (target mean - source mean) ** 2 / source variance
        chance = mean over channels of between / source variance * chance_scale(images)
        target_weight = maximum * max(0, 1 - (chance / distance) ** 2)

    with distance and chance summed over this layer and those before it. After the pass,
    `averages` are both averages with the batch, and `target_weight` is the weight in the mix.

    past: the long and the short average before the batch: mean, (2, 1, channel), and both
        variances, (2, 2, channel). past_weight: their weights against the batch, (2, 1, 1).
    precision, chance_precision: factors of the squared shift and of the variance between images;
        the products add up to distance and chance, (channel,).
    maximum: the largest weight of the target, ().
    """

    past: ChannelStatistics
    past_weight: Tensor
    source: ChannelStatistics
    precision: Tensor
    chance_precision: Tensor
    maximum: Tensor
    pooled: PooledDistance
    group: ProcessGroup | None
    target: ChannelStatistics | None = None
    batch: ChannelStatistics | None = None
    uses: int = 0

    @property
    def min_values(self) -> int:
        """One value per channel; with a group, another process may have it."""
        return 1 if self.group is None else 0

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The mix of both; `target` is the average before mixing."""
        if self.group is None:
            batch = image_statistics(inputs, near=self.past.mean[0, 0])
        else:
            batch = self.group.image_statistics(inputs)
        if self.batch:  # from an earlier use of the layer in the same pass
            batch = mix(self.batch, batch, self.uses / (self.uses + 1))
        self.batch, self.uses = batch, self.uses + 1
        self.averages = mix(self.past, batch, self.past_weight)
        mean, (variance, between) = self.averages.mean[0, 0], self.averages.variance[0]
        self.target = ChannelStatistics(mean, variance)
        shift = mean - self.source.mean
        distance = torch.dot(shift * shift, self.precision)
        chance = torch.dot(between, self.chance_precision)
        self.target_weight = self.pooled.add(distance, chance) * self.maximum
        return mix(self.target, self.source, self.target_weight)


class MeasuredStatistics(NamedTuple):
    """The statistics that torch's kernel measured in one use of a layer."""

    mean: Tensor
    inverse_deviation: Tensor  # 1 / sqrt(variance + eps)
    eps: float
    values: int  # per channel

    def statistics(self) -> ChannelStatistics:
        """Mean and biased variance."""
        variance = self.inverse_deviation.detach().pow(-2).sub_(self.eps).clamp_min_(0)
        return ChannelStatistics(self.mean.detach(), variance)


class TrainingStatistics:
    """The batch's own statistics, with gradients through them: for methods that train.

    torch's kernel for training measures while it normalizes, and its backward is several times
    faster than one through a mean and a variance. So the layer normalizes and calls `record`.
    """

    min_values = 2

    def __init__(self) -> None:
        self.uses: list[MeasuredStatistics] = []

    @property
    def target(self) -> ChannelStatistics | None:
        """The biased statistics of all uses in the pass."""
        if not self.uses:
            return None
        return pool([(use.statistics(), use.values) for use in self.uses])

    @property
    def count(self) -> int:
        """The number of values per channel."""
        return sum(use.values for use in self.uses)

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The statistics of these inputs alone, for a layer that cannot use torch's kernel."""
        statistics = measure(inputs)
        mean, variance = (each.detach() for each in statistics)
        self.record(MeasuredStatistics(mean, variance.rsqrt(), 0.0, values_per_channel(inputs)))
        return statistics

    def record(self, use: MeasuredStatistics) -> None:
        """Remembers what a layer measured."""
        self.uses.append(use)


class UnrecordedStatistics(TrainingStatistics):
    """The same for a pass whose statistics are not needed: `target` stays None."""

    def record(self, use: MeasuredStatistics) -> None:
        """Ignores what a layer measured."""


def used_layers(rules: Sequence[StatisticsRule]) -> list[int] | None:
    """The indices of the layers that a pass went through; None if it was all of them."""
    used = [index for index, rule in enumerate(rules) if rule.target is not None]
    return None if len(used) == len(rules) else used
