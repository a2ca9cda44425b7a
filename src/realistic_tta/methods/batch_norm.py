"""The methods that replace BatchNorm statistics in one pass: tbn, alpha_bn, adapt_bn, tema.

Each says which rule its layers follow for a batch, and what the source weighs in it. The rules are
in normalization/statistics_rules.py; rectified_tema.py is the method of two passes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.layers.robust_rules import RobustBatchStatistics, RobustMovingAverage
from realistic_tta.layers.statistics_rules import (
    BatchStatistics,
    InterpolatedStatistics,
    MovingAverage,
    StatisticsRule,
)

from .batch import Batch
from .batch_norm_method import BatchNormMethod
from .checks import check_number, check_switch
from .momentum_settings import MomentumSettings


class OnePassMethod(BatchNormMethod):
    """Measures and predicts in the same pass."""

    takes_replicas = True

    @abstractmethod
    def rules(self, batch_size: int) -> Sequence[StatisticsRule]:
        """What each layer follows, for a batch of this size."""

    @abstractmethod
    def weight_of_source(self, batch_size: int) -> float:
        """What the source weighs in the statistics, for a batch of this size."""

    def predict(self, batch: Batch) -> Any:
        """One pass; the statistics it measured are kept."""
        rules = self.rules(batch.size)
        outputs = self.run_with(batch, rules)
        target = self.measured(rules)
        weight = self.weight_of_source(batch.size)
        self.remember(
            target_mean=target.mean,
            target_variance=target.variance,
            source_weight=self.source_weight_after(rules, weight),
        )
        return outputs


@dataclass(frozen=True)
class TBNSettings:
    """robust: an image far outside what the network was trained on counts for next to nothing."""

    robust: bool = False

    def __post_init__(self) -> None:
        check_switch("robust", self.robust)


class TBN(OnePassMethod):
    """The batch's own statistics in place of the source's (Nado 2020; "BN-1").

    Nothing is carried from batch to batch; the last batch's statistics are kept for `freeze`.
    """

    name = "tbn"
    compiles = True
    needs_source = False
    settings_type = TBNSettings
    settings: TBNSettings

    def rules(self, batch_size: int) -> Sequence[StatisticsRule]:  # noqa: ARG002
        """The batch's mean and biased variance."""
        if self.settings.robust:
            return [
                RobustBatchStatistics(each) for each in self.kept_by_layer("source", self.source)
            ]
        return [BatchStatistics() for _ in self.layers]

    def weight_of_source(self, batch_size: int) -> float:  # noqa: ARG002
        """None."""
        return 0.0


class LinearMix(OnePassMethod):
    """Source and batch statistics, linearly; a method says in which parts."""

    def rules(self, batch_size: int) -> Sequence[StatisticsRule]:
        """weight_of_source parts of the source, the rest the batch."""
        weight = self.weight_of_source(batch_size)
        sources = self.kept_by_layer("source", self.source)
        return [InterpolatedStatistics(source, weight) for source in sources]


@dataclass(frozen=True)
class AlphaBNSettings:
    """target_weight: what the test batch weighs, from 0 to 1."""

    target_weight: float = 0.1  # the paper's comparison; You 2021 call 1 minus this alpha

    def __post_init__(self) -> None:
        check_number("target_weight", self.target_weight, low=0, high=1)


class AlphaBN(LinearMix):
    """Source and batch statistics in fixed parts (You 2021)."""

    name = "alpha_bn"
    compiles = True
    settings_type = AlphaBNSettings
    settings: AlphaBNSettings

    def weight_of_source(self, batch_size: int) -> float:  # noqa: ARG002
        """The same for every batch."""
        return 1 - self.settings.target_weight


@dataclass(frozen=True)
class AdaptBNSettings:
    """pseudo_samples: how many images of the batch the source counts for (the paper's N)."""

    pseudo_samples: float = 16  # Schneider 2020 give a range, no default

    def __post_init__(self) -> None:
        check_number("pseudo_samples", self.pseudo_samples, low=0)


class AdaptBN(LinearMix):
    """Source and batch statistics by sample counts (Schneider 2020)."""

    name = "adapt_bn"
    compiles = True
    settings_type = AdaptBNSettings
    settings: AdaptBNSettings

    def weight_of_source(self, batch_size: int) -> float:
        """pseudo_samples / (pseudo_samples + images in the batch)."""
        return self.settings.pseudo_samples / (self.settings.pseudo_samples + batch_size)


class Tema(BatchNormMethod):
    """A moving average of the target's statistics in place of the source's (paper, Eq. 3-5)."""

    name = "tema"
    takes_replicas = True
    compiles = True
    needs_source = False
    settings_type = MomentumSettings
    settings: MomentumSettings

    def start(self) -> ChannelStatistics:
        """Mean 0 and variance 1, or the source's."""
        return self.source if self.settings.start == "source" else super().start()

    def predict(self, batch: Batch) -> Any:
        """One pass; each layer carries its average on, this batch with the momentum of its size."""
        momentum = self.settings.momentum_for(batch.size)
        average, averages = self.carry_on()
        rules = self._rules(averages, momentum)
        outputs = self.run_with(batch, rules)
        self.check_finite(average)
        self.remember(
            target_mean=average.mean,
            target_variance=average.variance,
            source_weight=self.source_weight_after(rules),
        )
        return outputs

    def _rules(
        self, averages: Sequence[ChannelStatistics], momentum: float
    ) -> Sequence[MovingAverage]:
        before = self.kept_by_layer("target", self.target)
        pairs = zip(averages, before, strict=True)
        if not self.settings.robust:
            return [MovingAverage(*each, momentum) for each in pairs]
        sources = self.kept_by_layer("source", self.source)
        return [
            RobustMovingAverage(*each, momentum, source)
            for each, source in zip(pairs, sources, strict=True)
        ]
