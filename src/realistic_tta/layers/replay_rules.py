"""Which statistics a layer normalises with when many small batches share one pass (a replay).

As statistics_rules.py has them for one batch: `target` has one row a batch, (batch, channel), and
what a layer normalises with has one row an image. methods/replay.py gives these rules to layers.
A layer may be used once in a pass: what a second use adds to a batch would come too late for those
after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from realistic_tta.errors import InputError, ModelError
from realistic_tta.functional.batch_by_batch import Batches, average_each, measure_each
from realistic_tta.functional.channel_statistics import ChannelStatistics, interpolate, mix


class EachBatch(ABC):
    """Measures every batch of a pass by itself.

    correction: of the variance, as in `measure`.
    """

    measures = True
    least_values = 2
    correction = 1

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.target: ChannelStatistics | None = None

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """What each image is normalised with, (image, channel)."""
        self._check(inputs)
        measured = measure_each(inputs, self.batches, self.correction)
        self.target = self.carry_on(measured)
        return of_images(self.used(self.target), self.batches)

    @abstractmethod
    def carry_on(self, measured: ChannelStatistics) -> ChannelStatistics:
        """The target statistics after each batch, from what was measured in each."""

    @abstractmethod
    def used(self, target: ChannelStatistics) -> ChannelStatistics:
        """What each batch is normalised with, (batch, channel)."""

    def _check(self, inputs: Tensor) -> None:
        if self.target is not None:
            raise ModelError("a layer is used twice in one pass, which cannot be replayed")
        images = len(self.batches.of_image)
        if len(inputs) != images:
            raise ModelError(
                f"a layer got {len(inputs)} inputs for {images} images, which cannot be replayed"
            )
        if inputs.shape[2:].numel() * int(self.batches.sizes.min()) < 2:
            raise InputError(
                f"a layer got an input of shape {tuple(inputs.shape)}, one value a channel of a "
                'batch, which has no variance. Give larger batches, or use method="source"'
            )


class EachBatchAlone(EachBatch):
    """Its own mean and biased variance (TBN)."""

    correction = 0

    def carry_on(self, measured: ChannelStatistics) -> ChannelStatistics:
        """Nothing is carried on."""
        return measured

    def used(self, target: ChannelStatistics) -> ChannelStatistics:
        """The same."""
        return target


class EachInterpolated(EachBatchAlone):
    """A linear mix of source and batch (alpha-BN, AdaptBN). source_weight: (batch, 1)."""

    correction = 1

    def __init__(self, batches: Batches, source: ChannelStatistics, source_weight: Tensor) -> None:
        super().__init__(batches)
        self.source = source
        self.source_weight = source_weight

    def used(self, target: ChannelStatistics) -> ChannelStatistics:
        """source_weight * source + (1 - source_weight) * batch."""
        return interpolate(self.source, target, self.source_weight)


class EachAverage(EachBatch):
    """The moving average after each batch (TEMA). weights: of `average_weights`."""

    def __init__(self, batches: Batches, start: ChannelStatistics, weights: Tensor) -> None:
        super().__init__(batches)
        self.start = start
        self.weights = weights

    def carry_on(self, measured: ChannelStatistics) -> ChannelStatistics:
        """The average with the batches up to each."""
        pairs = zip(self.start, measured, strict=True)
        return ChannelStatistics(*(average_each(*pair, self.weights) for pair in pairs))

    def used(self, target: ChannelStatistics) -> ChannelStatistics:
        """The same."""
        return target


class EachRectified(EachAverage):
    """TEMA mixed with the source (Algorithm 1, pass 1). source_weight: (batch, 1)."""

    def __init__(
        self,
        batches: Batches,
        start: ChannelStatistics,
        weights: Tensor,
        source: ChannelStatistics,
        source_weight: Tensor,
    ) -> None:
        super().__init__(batches, start, weights)
        self.source = source
        self.source_weight = source_weight

    def used(self, target: ChannelStatistics) -> ChannelStatistics:
        """source_weight parts of the source, the rest TEMA (Eq. 6 and 7)."""
        return mix(self.source, target, self.source_weight)


def of_images(statistics: ChannelStatistics, batches: Batches) -> ChannelStatistics:
    """Those of each image's batch: (batch, channel) to (image, channel)."""
    return ChannelStatistics(*(each[batches.of_image] for each in statistics))
