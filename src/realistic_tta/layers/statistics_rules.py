"""Which statistics a layer normalises with: one small class a rule.

A method gives every layer a fresh rule before each pass of the network and reads `target` off it
afterwards; a rule changes nothing outside itself, so a pass that fails leaves no trace.
To add a rule, write a class with a method `statistics`; adaptive_batch_norm.py stays closed.

A layer may be used several times in one pass. All its inputs then count as one batch: `target`
is made from the statistics pooled over every use so far, weighted by the number of values.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    pool_all,
    rescale,
    values_per_channel,
)

from .replicas import Replicas


class StatisticsRule(Protocol):
    """Turns what reaches a layer into the statistics it is normalised with."""

    @property
    def measures(self) -> bool:
        """Whether the rule looks at the inputs, which therefore have to fit the layer."""
        ...

    @property
    def least_values(self) -> int:
        """How many values a channel it takes: a variance needs two."""
        ...

    @property
    def target(self) -> ChannelStatistics | None:
        """The layer's target statistics after this pass; None while it has not been used."""
        ...

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The statistics to normalise these inputs with."""
        ...


class FixedStatistics:
    """Whatever was given, for any input: pass 2 of Algorithm 1."""

    measures = False
    least_values = 0

    def __init__(self, fixed: ChannelStatistics) -> None:
        self.fixed = fixed
        self.target: ChannelStatistics | None = None

    def statistics(self, inputs: Tensor) -> ChannelStatistics:  # noqa: ARG002 - same for any input
        """The given statistics."""
        return self.fixed


class SharedRule:
    """A rule that measures: these inputs, and those of other processes where there are any."""

    measures = True
    replicas: Replicas | None = None  # the other processes
    count = 0  # values a channel, of all uses so far

    @property
    def least_values(self) -> int:
        """Two: a single one has no variance."""
        return 2

    def take(self, inputs: Tensor, correction: int) -> tuple[ChannelStatistics, int]:
        """Statistics of one use of the layer, and over how many values a channel."""
        if self.replicas is not None:
            return self.replicas.measure(inputs, correction)
        return measure(inputs, correction), values_per_channel(inputs)


class _Measuring(SharedRule):
    """Measures what reaches a layer, and pools all of it that comes in one pass into `target`.

    correction: of the variance, as in `measure`.
    """

    correction: ClassVar[int]
    target: ChannelStatistics | None = None

    def measure(self, inputs: Tensor) -> ChannelStatistics:
        """The statistics of these inputs alone."""
        statistics, count = self.take(inputs, self.correction)
        self.target = statistics if self.target is None else self._pool(statistics, count)
        self.count += count
        return statistics

    def _pool(self, statistics: ChannelStatistics, count: int) -> ChannelStatistics:
        assert self.target is not None
        before = rescale(self.target, self.count - self.correction, by=self.count)
        now = rescale(statistics, count - self.correction, by=count)
        total = self.count + count
        return rescale(pool(before, self.count, now, count), total, by=total - self.correction)


class BatchStatistics(_Measuring):
    """The batch's own mean and biased variance, as torch's BatchNorm in train mode (TBN)."""

    correction = 0

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The statistics of these inputs alone."""
        return self.measure(inputs)


class Told(NamedTuple):
    """What torch's kernel measured in one use of a layer, over so many values a channel."""

    mean: Tensor
    inverse_deviation: Tensor  # 1 / sqrt(variance + eps)
    eps: float
    values: int

    def statistics(self) -> ChannelStatistics:
        """Mean and biased variance."""
        variance = self.inverse_deviation.detach().pow(-2).sub_(self.eps).clamp_min_(0)
        return ChannelStatistics(self.mean.detach(), variance)


class TrainingStatistics:
    """The batch's own statistics, gradients passing through them: for methods that train.

    torch's kernel for training measures while it normalises, and its backward is several times
    faster than one through a mean and a variance. So the layer normalises and tells the rule.
    """

    measures = True
    least_values = 2

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.pooled: ChannelStatistics | None = None

    @property
    def target(self) -> ChannelStatistics | None:
        """Made only when somebody asks: cotta goes through a layer 32 times a batch."""
        if self.told and self.pooled is None:
            self.pooled = _pooled(self.told)
        return self.pooled

    @property
    def count(self) -> int:
        """How many values a channel were measured."""
        return sum(use.values for use in self.told)

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The statistics of these inputs alone, for a layer that has to be handed them."""
        statistics = measure(inputs)
        mean, variance = (each.detach() for each in statistics)
        self.tell(Told(mean, variance.rsqrt(), 0.0, values_per_channel(inputs)))
        return statistics

    def tell(self, use: Told) -> None:
        """Takes what the layer measured."""
        self.told.append(use)
        self.pooled = None


class UnrecordedStatistics(TrainingStatistics):
    """The same for a pass whose statistics nobody asks for: there is no `target`."""

    def tell(self, use: Told) -> None:
        """Forgets it."""


def _pooled(told: Sequence[Told]) -> ChannelStatistics:
    """The biased statistics of all uses of one layer together."""
    if len(told) == 1:
        return told[0].statistics()
    means, inverse_deviations, (eps, *_), counts = zip(*told, strict=True)
    stacked = Told(torch.stack(means), torch.stack(inverse_deviations), eps, sum(counts))
    uses = map(ChannelStatistics, *stacked.statistics())  # both (use, channel)
    return pool_all(list(zip(uses, counts, strict=True)))


class InterpolatedStatistics(_Measuring):
    """A linear mix of source and batch, unbiased batch variance (alpha-BN, AdaptBN)."""

    correction = 1

    def __init__(self, source: ChannelStatistics, source_weight: float) -> None:
        self.source = source
        self.source_weight = source_weight

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """source_weight * source + (1 - source_weight) * batch."""
        return interpolate(self.source, self.measure(inputs), self.source_weight)


class MovingAverage(SharedRule):
    """The moving average of the target's statistics (TEMA, Eq. 3 and 4), unbiased variance.

    average: the average before this pass, a copy that the rule carries on in place.
    previous: the same, to be left alone.
    """

    def __init__(
        self, average: ChannelStatistics, previous: ChannelStatistics, momentum: float
    ) -> None:
        self.average = average
        self.previous = previous
        self.momentum = momentum

    @property
    def target(self) -> ChannelStatistics | None:
        """The average, once a batch is part of it."""
        return self.average if self.count else None

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The average, the current batch included."""
        if self.count or self.replicas is not None:
            second, count = self.take(inputs, correction=1)
            batch = self._pool(second, count) if self.count else second
            average = moving_average(self.previous, batch, self.momentum)
            for kept, new in zip(self.average, average, strict=True):
                kept.copy_(new)
        else:
            count = values_per_channel(inputs)
            advance_(self.average, inputs, self.momentum)
        self.count += count
        return self.average

    def _pool(self, second: ChannelStatistics, count: int) -> ChannelStatistics:
        """Another use in the same pass: all of them count as one batch, with one momentum."""
        before, now = self.count - 1, count - 1  # the divisors of the two variances
        total = self.count + count
        first = moving_average(self.previous, self.average, 1 / self.momentum)  # the uses so far
        mean = torch.lerp(first.mean, second.mean, count / total)
        gap = (second.mean - first.mean).square() * (self.count * count / total)
        squares = first.variance * before + second.variance * now + gap
        return ChannelStatistics(mean, squares / (total - 1))


class RectifiedMovingAverage(MovingAverage):
    """TEMA mixed with the source's statistics (Eq. 6 and 7): pass 1 of Algorithm 1."""

    def __init__(
        self,
        average: ChannelStatistics,
        previous: ChannelStatistics,
        momentum: float,
        source: ChannelStatistics,
        source_weight: Tensor,
    ) -> None:
        super().__init__(average, previous, momentum)
        self.source = source
        self.source_weight = source_weight

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """source_weight parts of the source, the rest TEMA; `target` is TEMA before mixing."""
        return mix(self.source, super().statistics(inputs), self.source_weight)


def share(rules: Sequence[StatisticsRule], replicas: Replicas) -> None:
    """Those that measure take in the other processes' inputs."""
    for rule in rules:
        if isinstance(rule, SharedRule):
            rule.replicas = replicas


def reached(rules: Sequence[StatisticsRule]) -> list[int] | None:
    """Which layers the pass went through; None for all of them, as a rule."""
    layers = [place for place, rule in enumerate(rules) if rule.target is not None]
    return None if len(layers) == len(rules) else layers
