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

from .arrays import Array, as_tensor, at_hand, positive_part
from .channel_statistics import ChannelStatistics
from .kernel import moments_at_once

_FAR = 50.0  # a mean of 7 deviations, squared: there the square of the mean costs digits


class Units(NamedTuple):
    """What makes moments of one layer comparable: 0 is the source, 1 a source's deviation.

        first  = (mean - source.mean) / deviation
        second = (mean of (value - source.mean) ** 2 - variance) / (sqrt(2) * variance)

    The variance of a Gaussian's square is 2 variance ** 2, hence the root.
    source: its statistics, (channel,). inverse_deviation: of its root, (channel,).
    shift: what is subtracted from values first, (channel,); None where the source's mean is small
    enough.
    constant: what both moments are of a sum of 0 and a square sum of 0, (2, channel).
    slope: what the mean of the values adds to both, (2, channel).
    square_slope: what the mean of their squares adds to the second, (channel,).
    origin, scale: moments times scale, and origin added, are mean and second moment, (2, channel).
    """

    source: ChannelStatistics
    inverse_deviation: Tensor
    shift: Tensor | None
    constant: Array
    slope: Array
    square_slope: Array
    origin: Array
    scale: Array

    @classmethod
    def of(cls, source: ChannelStatistics, floor: float, *, is_far: bool = False) -> Units:
        """floor: added to every variance before dividing by it. is_far: as `is_far` says."""
        variance = source.variance + floor
        deviation, spread = variance.sqrt(), variance * 2**0.5
        centre = torch.zeros_like(source.mean) if is_far else source.mean
        constant = torch.stack((-centre / deviation, (centre.square() - source.variance) / spread))
        return cls(
            source,
            1 / deviation,
            source.mean if is_far else None,
            at_hand(constant),
            at_hand(torch.stack((1 / deviation, -2 * centre / spread))),
            at_hand(1 / spread),
            at_hand(torch.stack(source)),
            at_hand(torch.stack((deviation, spread))),
        )


def is_far(source: ChannelStatistics) -> bool:
    """Whether a mean is so far above its deviation that it has to be subtracted first."""
    if source.mean.is_meta:  # cannot be looked at
        return True
    return bool((source.mean.square() > _FAR * source.variance).any())


def image_moments(inputs: Tensor, units: Units) -> Array:
    """Both moments of each image over its positions, in the source's units: (image, 2 * channel).

    inputs: (image, channel) or (image, channel, *positions).

    >>> source = ChannelStatistics(*torch.tensor([[1.0], [4.0]], device="cpu"))
    >>> inputs = torch.tensor([[[1.0, 5.0]]], device="cpu")  # mean 3, mean square about 1: 8
    >>> [round(each, 4) for each in image_moments(inputs, Units.of(source, 0.0)).flatten().tolist()]
    [1.0, 0.7071]
    """
    at_once = moments_at_once(inputs, units.constant, units.slope, units.square_slope, units.shift)
    if at_once is not None:
        return at_once
    dtype = units.inverse_deviation.dtype
    if inputs.dtype is not dtype:
        inputs = inputs.to(dtype)
    if units.shift is not None:
        inputs = inputs - units.shift.view(-1, *(1 for _ in inputs.shape[2:]))
    if inputs.ndim == 2:
        total, each = at_hand(inputs), 1.0
        squares = total * total
    else:
        inner = tuple(range(2, inputs.ndim))
        total = at_hand(inputs.sum(dim=inner))  # (image, channel)
        squares = _squares(inputs, inner)
        each = 1 / inputs.shape[2:].numel()
    moments = total[:, None] * (units.slope * each)  # (image, 2, channel)
    moments += units.constant
    moments[:, 1] += squares * (units.square_slope * each)
    return moments.reshape(len(moments), -1)


def _squares(inputs: Tensor, inner: tuple[int, ...]) -> Array:
    """Sum of the squares over the inner axes, (image, channel).

    The norm makes no tensor of all squares, but is slow where channels lie next to each other.
    """
    if not inputs.is_contiguous():
        return at_hand(inputs.square().sum(dim=inner))
    norm = at_hand(torch.linalg.vector_norm(inputs, dim=inner))
    return norm * norm


def to_statistics(moments: Array, units: Units) -> ChannelStatistics:
    """Mean and variance that belong to moments in the source's units, (..., 2 * channel).

        variance = second moment - first moment ** 2

    >>> source = ChannelStatistics(*torch.tensor([[1.0], [4.0]], device="cpu"))
    >>> moments = at_hand(torch.tensor([1.0, 0.7071], device="cpu"))
    >>> [round(each.item(), 3) for each in to_statistics(moments, Units.of(source, 0.0))]
    [3.0, 4.0]
    """
    moved = moments.reshape(*moments.shape[:-1], 2, -1) * units.scale
    both = moved + units.origin
    first = moved[..., 0, :]
    variance = positive_part(both[..., 1, :] - first * first)
    return ChannelStatistics(as_tensor(both[..., 0, :]), as_tensor(variance))


def without_between(moments: Array) -> Array:
    """The second moment less the first's square: a batch's variance about its own mean.

    For comparison: averages of it leave out how far the means of batches lie apart.
    """
    moments = as_tensor(moments)
    first, second = moments.chunk(2, dim=-1)
    return at_hand(
        torch.cat((first, torch.addcmul(second, first, first, value=-(2**-0.5))), dim=-1)
    )


def to_batch_variances(moments: Array, units: Units) -> ChannelStatistics:
    """Statistics from averages of `without_between`: the second is the variance already."""
    mean, variance = moments.reshape(2, -1) * units.scale + units.origin
    return ChannelStatistics(as_tensor(mean), as_tensor(positive_part(variance)))
