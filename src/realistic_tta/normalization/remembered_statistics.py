"""The rule of methods/realistic.py: statistics from memories of different length and the source.

A rule of its own file, like those in statistics_rules.py: it changes nothing outside itself, and
what it measured is read off it after the pass.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from realistic_tta.statistics.channel_statistics import ChannelStatistics
from realistic_tta.statistics.image_moments import image_moments, to_statistics
from realistic_tta.statistics.leaning import lean


class Known(NamedTuple):
    """What is known of a layer before a batch.

    centre: the source's mean, (channel,). scale: makes moments comparable, (2, channel).
    source: the source's moments, (2, channel); None to leave the source out.
    memories: moments averaged over the last images, (memory, 2, channel), the longest first.
    spread: variance of the moments from image to image, (2, channel).
    """

    centre: Tensor
    scale: Tensor
    source: Tensor | None
    memories: Tensor
    spread: Tensor


class Shares(NamedTuple):
    """What a batch weighs in a layer's averages, and how sure these are.

    memories: share of the batch in each, (memory, 1, 1). spread: the same, a number.
    correction: n / (n - 1) for the n images that the spread is measured among, a number.
    uncertainty: variance of each memory's mean, as a part of the spread, (memory,).
    tolerance: gap that counts as none, for each moment of each channel.
    """

    memories: Tensor
    spread: Tensor
    correction: Tensor
    uncertainty: Tensor
    tolerance: float


class RememberedStatistics:
    """Leans on the source, then on each memory, as far as chance explains how they differ."""

    measures = True

    def __init__(self, known: Known, shares: Shares) -> None:
        self.known, self.shares = known, shares
        self.uses: list[tuple[Tensor, int]] = []
        self.memories, self.spread = known.memories, known.spread
        self.source_weight: Tensor | None = None
        self.target: ChannelStatistics | None = None

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The estimate, with all inputs of this pass."""
        known, shares = self.known, self.shares
        moments, weights = self._pool(inputs)  # (image, 2, channel)
        mean = self.batch_mean(_average(moments, weights))  # (2, channel)
        self.memories = torch.addcmul(known.memories, mean - known.memories, shares.memories)
        spread = _average((moments - self.memories[-1]).square_(), weights) * shares.correction
        self.spread = torch.lerp(known.spread, spread, shares.spread)
        noise = torch.dot(self.spread.flatten(), known.scale.flatten())  # a number
        explained = shares.uncertainty * noise + shares.tolerance * known.scale.numel()
        self.target = self.to_statistics(self._lean(explained))
        return self.target

    def batch_mean(self, moments: Tensor) -> Tensor:
        """What of the batch's mean moments goes into the memories, (2, channel)."""
        return moments

    def to_statistics(self, moments: Tensor) -> ChannelStatistics:
        """What the moments in the memories stand for."""
        return to_statistics(moments, self.known.centre)

    def _lean(self, explained: Tensor) -> Tensor:
        """The estimate, (2, channel); notes what the source weighs in it."""
        source = self.known.source
        start = self.memories[0] if source is None else source
        estimate, weight = lean(start, self.memories, explained, self.known.scale)
        self.source_weight = torch.zeros_like(weight) if source is None else weight
        return estimate

    def _pool(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """The images of every use of the layer so far, and what each weighs; None for the same."""
        positions = inputs.numel() // (inputs.shape[0] * inputs.shape[1])
        self.uses.append((image_moments(inputs, self.known.centre), positions))
        if len(self.uses) == 1:
            return self.uses[0][0], None
        weights = [moments.new_full((len(moments),), float(count)) for moments, count in self.uses]
        return torch.cat([moments for moments, _ in self.uses]), torch.cat(weights)


class BatchVariances(RememberedStatistics):
    """The same with the paper's average of batch variances in place of the total variance.

    For comparison: it leaves out how far the means of batches lie apart.
    """

    def batch_mean(self, moments: Tensor) -> Tensor:
        """The batch's mean, and its variance about it."""
        first, second = moments
        return torch.stack((first, second - first.square()))

    def to_statistics(self, moments: Tensor) -> ChannelStatistics:
        """The second is the variance already."""
        first, second = moments
        return ChannelStatistics(first + self.known.centre, second.clamp_min(0))


def _average(moments: Tensor, weights: Tensor | None) -> Tensor:
    """Over the images: (image, 2, channel) to (2, channel)."""
    if weights is None:
        return moments.mean(dim=0)
    shares = weights / weights.sum()
    return (shares.view(-1, 1, 1) * moments).sum(dim=0)
