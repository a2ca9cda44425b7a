"""First and second moments of each image's channels, in units of the source.

Averaged over images they give the total variance: how much the values inside an image differ and
how much the images differ from each other. The paper averages the variances of batches, which
leaves out how far the batches' means lie apart; in batches of one image that is most of what the
source's variance holds. Used by normalization/remembered_statistics.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .channel_statistics import ChannelStatistics

_FAR = 50.0  # a mean of 7 deviations, squared: there the square of the mean costs digits


class Units(NamedTuple):
    """What makes moments of one layer comparable: 0 is the source, 1 a source's deviation.

        first  = (mean - source.mean) / deviation
        second = (mean of (value - source.mean) ** 2 - variance) / (sqrt(2) * variance)

    The variance of a Gaussian's square is 2 variance ** 2, hence the root. All are (channel,):
    source: its statistics. deviation: its root. spread: sqrt(2) * variance.
    shift: what is subtracted from values first; None where the source's mean is small enough.
    inverse_deviation, inverse_spread: 1 / deviation, 1 / spread.
    constant: what both moments are of a sum of 0 and a square sum of 0, (2, channel).
    slope: what the mean of the values adds to both, (2, channel).
    zero: what a product is added to, where it stands alone.
    """

    source: ChannelStatistics
    deviation: Tensor
    spread: Tensor
    shift: Tensor | None
    inverse_deviation: Tensor
    inverse_spread: Tensor
    constant: Tensor
    slope: Tensor
    zero: Tensor

    @classmethod
    def of(cls, source: ChannelStatistics, floor: float, *, is_far: bool = False) -> Units:
        """floor: added to every variance before dividing by it. is_far: as `is_far` says."""
        variance = source.variance + floor
        deviation, spread = variance.sqrt(), variance * 2**0.5
        centre = torch.zeros_like(source.mean) if is_far else source.mean
        return cls(
            source,
            deviation,
            spread,
            source.mean if is_far else None,
            1 / deviation,
            1 / spread,
            torch.stack((-centre / deviation, (centre.square() - source.variance) / spread)),
            torch.stack((1 / deviation, -2 * centre / spread)),
            torch.zeros_like(source.mean),
        )


def is_far(source: ChannelStatistics) -> bool:
    """Whether a mean is so far above its deviation that it has to be subtracted first."""
    if source.mean.is_meta:  # cannot be looked at
        return True
    return bool((source.mean.square() > _FAR * source.variance).any())


def image_moments(inputs: Tensor, units: Units) -> Tensor:
    """Both moments of each image over its positions, in the source's units: (image, 2 * channel).

    inputs: (image, channel) or (image, channel, *positions).

    >>> source = ChannelStatistics(*torch.tensor([[1.0], [4.0]], device="cpu"))
    >>> inputs = torch.tensor([[[1.0, 5.0]]], device="cpu")  # mean 3, mean square about 1: 8
    >>> [round(each, 4) for each in image_moments(inputs, Units.of(source, 0.0)).flatten().tolist()]
    [1.0, 0.7071]
    """
    if inputs.dtype is not units.deviation.dtype:
        inputs = inputs.to(units.deviation.dtype)
    if units.shift is not None:
        inputs = inputs - units.shift.view(-1, *(1 for _ in inputs.shape[2:]))
    if inputs.ndim == 2:
        total, squares, each = inputs, inputs * inputs, 1.0
    else:
        inner = tuple(range(2, inputs.ndim))
        total = inputs.sum(dim=inner)  # (image, channel)
        norm = torch.linalg.vector_norm(inputs, dim=inner)
        squares = torch.addcmul(units.zero, norm, norm)
        each = total.numel() / inputs.numel()
    # Few kinds of operations: between a network's layers each has to be fetched into the cache.
    moments = torch.addcmul(units.constant, total.unsqueeze(1), units.slope, value=each)
    moments.select(1, 1).addcmul_(squares, units.inverse_spread, value=each)
    return moments.flatten(1)


def to_statistics(moments: Tensor, units: Units) -> ChannelStatistics:
    """Mean and variance that belong to moments in the source's units, (..., 2 * channel).

        variance = second moment - first moment ** 2

    >>> source = ChannelStatistics(*torch.tensor([[1.0], [4.0]], device="cpu"))
    >>> moments = torch.tensor([1.0, 0.7071], device="cpu")
    >>> [round(each.item(), 3) for each in to_statistics(moments, Units.of(source, 0.0))]
    [3.0, 4.0]
    """
    both = moments.view(*moments.shape[:-1], 2, -1)
    first, second = both.select(-2, 0), both.select(-2, 1)
    mean = torch.addcmul(units.source.mean, first, units.deviation)
    moved = torch.addcmul(units.zero, first, units.deviation)
    square = torch.addcmul(units.source.variance, second, units.spread)
    return ChannelStatistics(mean, square.addcmul_(moved, moved, value=-1).relu_())


def without_between(moments: Tensor) -> Tensor:
    """The second moment less the first's square: a batch's variance about its own mean.

    For comparison: averages of it leave out how far the means of batches lie apart.
    """
    first, second = moments.chunk(2, dim=-1)
    return torch.cat((first, torch.addcmul(second, first, first, value=-(2**-0.5))), dim=-1)


def to_batch_variances(moments: Tensor, units: Units) -> ChannelStatistics:
    """Statistics from averages of `without_between`: the second is the variance already."""
    first, second = moments.view(2, -1).unbind()
    variance = torch.addcmul(units.source.variance, second, units.spread)
    return ChannelStatistics(
        torch.addcmul(units.source.mean, first, units.deviation), variance.relu_()
    )
