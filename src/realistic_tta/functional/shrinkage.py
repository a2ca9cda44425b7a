"""Statistics over the images of a stream, and how far to trust them against the source's.

Used by methods/realistic.py and its rule in layers/rules.py. An image counts as one observation,
because its positions are not independent. The variance between the images' means tells how far an
average over images lies from its expectation by chance alone. Distances between means are compared
with that, to see whether the stream differs from the source, whether it has changed, and whether
its labels come in runs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .channel_statistics import ChannelStatistics, measure, measure_images

VARIANCE_FLOOR = 1e-5  # added to every variance before dividing by it, as in rectification.py
TINY = 1e-12  # keeps 0 / 0 from being NaN, and rounding from counting as a distance
# Clean images, too, differ from the training images, which were cropped and augmented: by about as
# much as a mean over so many images differs from its expectation.
FEW_IMAGES = 10
OVERLAP = 2 / 3  # of the chance that remains between two averages that share the recent images


class ImageWeights(NamedTuple):
    """The sums of the weights of all images, and of their squares, per layer.

    (layer,), or (layer, average) for several averages that forget at different rates.
    """

    total: Tensor
    squares: Tensor

    def after(self, images: int, decay: float | Tensor) -> ImageWeights:
        """With a batch whose images have weight 1; all earlier weights decay by a factor.

        >>> none = ImageWeights(*torch.zeros(2, 1, device="cpu"))
        >>> [each.item() for each in none.after(4, 0.5).after(2, 0.5)]
        [4.0, 3.0]
        """
        return ImageWeights(self.total * decay + images, self.squares * decay**2 + images)

    def images(self) -> Tensor:
        """The number of equally weighted images that would be as informative."""
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


def source_precision(source_variance: Tensor, channels: Tensor) -> Tensor:
    """1 / (source variance * channels of the layer), so that a dot product is a mean over channels.

    source_variance, channels: of all layers, (all channels,).
    """
    return 1 / ((source_variance + VARIANCE_FLOOR) * channels)


def unexplained(chance: Tensor | float, distance: Tensor) -> Tensor:
    """The part of a distance that chance does not explain, from 0 to 1.

        max(0, 1 - (chance / distance) ** 2)

    chance, distance: squared distances, in the same unit. The distance is above 0.

    >>> [unexplained(1.0, torch.tensor(each)).item() for each in (0.5, 1.0, 2.0)]
    [0.0, 0.0, 0.75]
    """
    ratio = chance / distance
    return (1 - ratio * ratio).clamp_min(0)


def chance_scale(images: Tensor, correlation_time: Tensor) -> Tensor:
    """The factor from the variance between images to `chance`, for means of so many images.

        max(1, correlation_time) ** 2 / min(images - 1, FEW_IMAGES)

    correlation_time: about how many images of the stream tell as much as one independent image. It
    is squared because it is underestimated: the average moves along with a run of labels.
    """
    return correlation_time.clamp_min(1).square() / (images - 1).clamp(TINY, FEW_IMAGES)


def fluctuation(
    past: ChannelStatistics,
    recent: ChannelStatistics,
    precision: Tensor,
    recent_images: Tensor,
    channels: Tensor,
) -> Tensor:
    """The squared distance of the recent mean from the past one, in units of chance: (layer,).

        distance = mean over channels of (recent mean - past mean) ** 2 / source variance
        chance = mean over channels of 2/3 * between / recent images / source variance
        fluctuation = distance / chance

    About 1 if the images come in random order; NaN in layers that were not used.

    past, recent: of all layers, (all channels,); the past includes the recent images. The second
    variance is the one between images.
    recent_images: effective number, (layer,). channels: of each layer, (layer,).
    """
    distance = per_layer((recent.mean - past.mean).square() * precision, channels)
    between = per_layer(past.variance[1] * precision, channels)
    return distance / (between + TINY) * recent_images / OVERLAP


def per_layer(values: Tensor, channels: Tensor) -> Tensor:
    """Sums over the channels of each layer, (layer,). values: (all channels,)."""
    return torch.segment_reduce(values, "sum", lengths=channels, unsafe=True)
