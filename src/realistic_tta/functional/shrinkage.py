"""Statistics over the images of a stream, and how far to trust them against the source's.

Used by methods/realistic.py and its rule in layers/rules.py. An image counts as one observation,
because its positions are not independent. The variance between the images' means tells how far the
target mean would be from the source mean by chance alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .channel_statistics import ChannelStatistics, measure, measure_images

VARIANCE_FLOOR = 1e-5  # added to every variance before dividing by it, as in rectification.py
TINY = 1e-12  # keeps 0 / 0 from being NaN


class ImageWeights(NamedTuple):
    """The sums of the weights of all images, and of their squares, per layer: (layer,)."""

    total: Tensor
    squares: Tensor

    def after(self, images: int, decay: float) -> ImageWeights:
        """With a batch whose images have weight 1; all earlier weights decay by a factor.

        >>> none = ImageWeights(*torch.zeros(2, 1, device="cpu"))
        >>> [each.item() for each in none.after(4, 0.5).after(2, 0.5)]
        [4.0, 3.0]
        """
        return ImageWeights(self.total * decay + images, self.squares * decay**2 + images)

    def images(self) -> Tensor:
        """The number of equally weighted images that would be as informative, (layer,)."""
        return self.total.square() / self.squares


def image_statistics(inputs: Tensor, near: Tensor | None = None) -> ChannelStatistics:
    """Mean per channel, and two variances: over all values, and between the images' means.

    inputs, near: as in `measure`. The variance is (2, channel), biased.

    >>> inputs = torch.tensor([[[1.0, 3.0]], [[6.0, 6.0]]], device="cpu")
    >>> mean, variance = image_statistics(inputs)
    >>> mean.tolist(), variance.tolist()
    ([4.0], [[4.5], [4.0]])
    """
    if len(inputs) == 1:
        mean, variance = measure(inputs, near=near)
        return ChannelStatistics(mean, torch.stack((variance, variance - variance)))
    means, variances = measure_images(inputs, near)
    mean = means.mean(dim=0)
    between = (means - mean).square_().mean(dim=0)
    return ChannelStatistics(mean, torch.stack((variances.mean(dim=0) + between, between)))


def precision(source_variance: Tensor, channels: Tensor) -> Tensor:
    """1 / (source variance * channels of the layer), so that a dot product is a mean over channels.

    source_variance, channels: of all layers, (all channels,).
    """
    return 1 / ((source_variance + VARIANCE_FLOOR) * channels)


def shrunk_target_weight(
    between: Tensor, shift: Tensor, precision: Tensor, chance_scale: Tensor, maximum: Tensor
) -> Tensor:
    """The weight of the target statistics in the mix with the source's, from 0 to `maximum`.

        chance   = mean over channels of between / (images - 1) / source variance
        distance = mean over channels of shift ** 2 / source variance
        target_weight = maximum * max(0, 1 - chance / distance)

    The factor is James and Stein's: none of the target is used where chance explains its distance
    from the source.

    between: the variance of the images' means. shift: target mean - source mean, (channel,).
    precision: as `precision` gives it, (channel,).
    chance_scale, maximum: maximum / (images - 1), and the maximum, ().
    """
    chance = torch.dot(between, precision)
    distance = torch.dot(shift * shift, precision).clamp_min_(TINY)
    return (maximum - chance * chance_scale / distance).clamp_min_(0)
