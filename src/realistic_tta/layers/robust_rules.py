"""The rules of robust=True: statistics in which each image counts as far as it can be trusted.

As those in statistics_rules.py, built from statistics/trust.py. The source is what trust is
measured by. Used by methods/batch_norm.py and methods/rectified_tema.py.
"""

from __future__ import annotations

from torch import Tensor

from realistic_tta.functional.channel_statistics import ChannelStatistics, mix
from realistic_tta.functional.trust import TrustedSums, robust_average

from .statistics_rules import MovingAverage, StatisticsRule


class RobustBatchStatistics:
    """The batch's own mean and biased variance; what the batch lacks in trust the source makes up.

    Each use of a layer is normalised by itself, as in BatchStatistics; `target` is of all of them.
    """

    measures = True
    least_values = 2

    def __init__(self, source: ChannelStatistics) -> None:
        self.source = source
        self.sums: TrustedSums | None = None  # over all uses of the layer in this pass
        self.target: ChannelStatistics | None = None

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """Those of these inputs alone."""
        sums = TrustedSums.of(inputs, self.source)
        statistics = self._average(sums)
        self.sums = sums if self.sums is None else self.sums.plus(sums)
        self.target = statistics if self.sums is sums else self._average(self.sums)
        return statistics

    def _average(self, sums: TrustedSums) -> ChannelStatistics:
        return robust_average(self.source, sums, 1.0, self.source.mean, correction=0)


class RobustMovingAverage(MovingAverage):
    """The moving average of TEMA; what a batch lacks in trust stays with the past."""

    def __init__(
        self,
        average: ChannelStatistics,
        previous: ChannelStatistics,
        momentum: float,
        source: ChannelStatistics,
    ) -> None:
        super().__init__(average, previous, momentum)
        self.source = source
        self.sums: TrustedSums | None = None  # over all uses of the layer in this pass

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The average, the current batch included."""
        sums = TrustedSums.of(inputs, self.source)
        self.sums = sums if self.sums is None else self.sums.plus(sums)
        self.count = self.sums.values
        average = robust_average(self.previous, self.sums, self.momentum, self.source.mean, 1)
        for kept, new in zip(self.average, average, strict=True):
            kept.copy_(new)
        return self.average


class MixedWithSource:
    """What another rule says, mixed with the source's statistics (Eq. 6 and 7)."""

    measures = True
    least_values = 2

    def __init__(
        self, rule: StatisticsRule, source: ChannelStatistics, source_weight: Tensor
    ) -> None:
        self.rule = rule
        self.source = source
        self.source_weight = source_weight

    @property
    def target(self) -> ChannelStatistics | None:
        """The rule's own, before mixing."""
        return self.rule.target

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """source_weight parts of the source, the rest what the rule says."""
        return mix(self.source, self.rule.statistics(inputs), self.source_weight)
