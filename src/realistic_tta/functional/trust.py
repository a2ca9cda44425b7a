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
from .rectification import VARIANCE_FLOOR

BOUND = 3.0  # of good images under twelve corruptions 99 in 100 lie below (docs/reliability.md)


def moments_about(inputs: Tensor, centre: Tensor) -> Tensor:
    """Mean of (inputs - centre) and of its square, over the positions: (image, 2, channel).

    inputs: (image, channel) or (image, channel, *positions). centre: (channel,), the source's mean:
    moments about it lose no digits where a channel's mean is far larger than its deviation.

    >>> inputs = torch.tensor([[[1.0, 3.0]], [[5.0, 5.0]]], device="cpu")
    >>> moments_about(inputs, torch.tensor([1.0], device="cpu")).squeeze(-1).tolist()
    [[1.0, 2.0], [4.0, 16.0]]
    """
    inputs = inputs.to(centre.dtype)
    distance = (inputs.flatten(2) if inputs.ndim > 2 else inputs.unsqueeze(2)) - centre.unsqueeze(1)
    first = distance.mean(dim=2)  # (image, channel)
    second = distance.square_().mean(dim=2)
    return torch.stack((first, second), dim=1)


def remoteness(moments: Tensor, source_variance: Tensor) -> Tensor:
    """How far each image lies from the source, (image,): 1 on average for images of the source.

        remoteness = mean over channels of second / source_variance

    moments: of `moments_about` the source's mean, (image, 2, channel): first and second.
    """
    return (moments[:, 1] / (source_variance + VARIANCE_FLOOR)).mean(dim=1)


def remoteness_in_units(moments: Tensor) -> Tensor:
    """The same, from moments in the source's units (image_moments.py), (image, 2 * channel)."""
    _, second = moments.chunk(2, dim=1)
    return 1 + 2**0.5 * second.mean(dim=1)


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
        moments = moments_about(inputs, source.mean)  # (image, 2, channel)
        weights = trust(remoteness(moments, source.variance), bound)  # (image,)
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
    first, second = sums.moments / sums.trusted.clamp_min(_LEAST)
    variance = torch.addcmul(second, first, first, value=-1).relu_()
    variance *= sums.values / (sums.values - correction)
    share = sums.trusted * (momentum / sums.values)
    return ChannelStatistics(
        torch.lerp(previous.mean, centre + first, share),
        torch.lerp(previous.variance, variance, share),
    )


_LEAST = 1e-30  # where nothing is trusted, nothing changes
