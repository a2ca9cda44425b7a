"""First and second moments of each image's channels, about the source's mean.

Averaged over images they give the total variance: how much the values inside an image differ and
how much the images differ from each other. The paper averages the variances of batches, which
leaves out how far the batches' means lie apart; in batches of one image that is most of what the
source's variance holds. Used by normalization/remembered_statistics.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .channel_statistics import ChannelStatistics


def image_moments(inputs: Tensor, centre: Tensor) -> Tensor:
    """Mean of (inputs - centre) and of its square, over the positions: (image, 2, channel).

    inputs: (image, channel) or (image, channel, *positions). centre: (channel,), the source's mean:
    moments about it lose no digits where a channel's mean is far larger than its deviation.

    >>> inputs = torch.tensor([[[1.0, 3.0]], [[5.0, 5.0]]], device="cpu")
    >>> image_moments(inputs, torch.tensor([1.0], device="cpu")).squeeze(-1).tolist()
    [[1.0, 2.0], [4.0, 16.0]]
    """
    inputs = inputs.to(centre.dtype)
    distance = (inputs.flatten(2) if inputs.ndim > 2 else inputs.unsqueeze(2)) - centre.unsqueeze(1)
    first = distance.mean(dim=2)  # (image, channel)
    second = distance.square_().mean(dim=2)
    return torch.stack((first, second), dim=1)


def to_moments(statistics: ChannelStatistics, centre: Tensor) -> Tensor:
    """The moments about the centre that belong to a mean and a variance: (2, channel)."""
    first = statistics.mean - centre
    return torch.stack((first, statistics.variance + first.square()))


def to_statistics(moments: Tensor, centre: Tensor) -> ChannelStatistics:
    """Mean and variance that belong to moments about the centre: the inverse of `to_moments`.

        variance = second - first ** 2

    >>> centre = torch.tensor([10.0], device="cpu")
    >>> found = to_statistics(torch.tensor([[2.0], [5.0]], device="cpu"), centre)
    >>> [statistic.item() for statistic in found]
    [12.0, 1.0]
    """
    first, second = moments
    return ChannelStatistics(first + centre, torch.addcmul(second, first, first, value=-1).relu_())


def moment_scale(variance: Tensor, floor: float) -> Tensor:
    """One over what a Gaussian of this variance makes of each moment's square, (2, channel).

        1 / variance for the first moment, 1 / (2 variance ** 2) for the second

    so that gaps of all channels and of both moments can be added. floor: added to the variance.
    """
    inverse = (variance + floor).reciprocal()
    return torch.stack((inverse, inverse.square() / 2))
