"""Statistics that no single image can drag away: each image counts as far as it can be trusted.

An image that lies far outside what the layer has seen in training loses its share in the average,
and the share stays with what was known before. Plain statistics square every value, so that one
image of a thousand times the usual scale outweighs a million others. Used by
normalization/robust_rules.py and normalization/remembered_statistics.py.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

from .channel_statistics import ChannelStatistics
from .image_moments import image_moments, to_statistics
from .rectification import VARIANCE_FLOOR

BOUND = 3.0  # good images of 19 corruptions: 99 of 100 lie below in a layer (docs/reliability.md)


def remoteness(moments: Tensor, precision: Tensor) -> Tensor:
    """How far each image lies from the source, (image,): 1 on average for images of the source.

        remoteness = mean over channels of second * precision

    moments: of `image_moments` about the source's mean, (image, 2, channel): first and second.
    precision: one over the source's variance, (channel,).
    """
    return (moments[:, 1] * precision).mean(dim=1)  # no product of matrices: autocast would round


def trust(remoteness: Tensor, bound: float = BOUND) -> Tensor:
    """What each image counts for, from 0 to 1, (image,).

        trust = min(1, bound / remoteness) ** 2

    so that trust * remoteness, what an image adds to the second moment, is at most the bound, and
    falls again the further away the image is.

    >>> trust(torch.tensor([1.0, 3.0, 6.0], device="cpu")).tolist()
    [1.0, 1.0, 0.25]
    """
    return (bound / remoteness).clamp_max(1).square()


class TrustedSums(NamedTuple):
    """Sums over the values of a channel, each times the trust in its image.

    values: how many a channel has. trusted: the sum of trust over them, a number.
    moments: the summed first and second moments about the source's mean, (2, channel).
    """

    values: int
    trusted: Tensor
    moments: Tensor

    @classmethod
    def of(cls, inputs: Tensor, source: ChannelStatistics, bound: float = BOUND) -> Self:
        """What reached a layer: (image, channel) or (image, channel, *positions)."""
        moments = image_moments(inputs, source.mean)  # (image, 2, channel)
        precision = (source.variance + VARIANCE_FLOOR).reciprocal()
        weights = trust(remoteness(moments, precision), bound)  # (image,)
        positions = inputs.shape[2:].numel()
        each = weights[:, None, None]
        summed = (each * torch.where(each > 0, moments, 0)).sum(dim=0)  # squares may be Inf
        return cls(len(inputs) * positions, weights.sum() * positions, summed * positions)

    def plus(self, other: TrustedSums) -> TrustedSums:
        """Of both."""
        return TrustedSums(
            self.values + other.values, self.trusted + other.trusted, self.moments + other.moments
        )


def robust_average(
    previous: ChannelStatistics, sums: TrustedSums, momentum: float, centre: Tensor, correction: int
) -> ChannelStatistics:
    """One step of TEMA with the trusted part of a batch; equal to the plain one if trust is 1.

        share   = momentum * trusted / values
        average = share * batch + (1 - share) * previous

    centre: the source's mean, (channel,). correction: of the variance, as in `measure`.
    """
    batch = to_statistics(sums.moments / sums.trusted.clamp_min(_LEAST), centre)
    variance = batch.variance * (sums.values / (sums.values - correction))
    share = sums.trusted * (momentum / sums.values)
    return ChannelStatistics(
        torch.lerp(previous.mean, batch.mean, share),
        torch.lerp(previous.variance, variance, share),
    )


_LEAST = 1e-30  # where nothing is trusted, nothing changes
