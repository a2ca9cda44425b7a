"""Mean and variance per channel: measured, averaged over time, combined with the source's.

The rules in layers/rules.py are built from these functions. Device and dtype follow the arguments.
Two formulas, two names: `interpolate` is linear (alpha-BN, AdaptBN); `mix` adds the spread between
the two means (the paper's Eq. 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class ChannelStatistics(NamedTuple):
    """Mean and variance of each channel, both of shape (channel,)."""

    mean: Tensor
    variance: Tensor


def measure(inputs: Tensor, correction: int = 0, near: Tensor | None = None) -> ChannelStatistics:
    """Mean and variance per channel over images and positions, in float32 or better.

        mean = average of inputs
        variance = sum of (inputs - mean) ** 2 / (count - correction)

    inputs: (image, channel) or (image, channel, *positions).
    correction: 0 for the biased variance that torch normalizes with in training, 1 for the
        unbiased one that it keeps in running_var.
    near: a guess of the mean, (channel,); it makes a compiled graph faster.

    >>> mean, variance = measure(torch.tensor([[1.0, 5.0], [3.0, 5.0]], device="cpu"))
    >>> mean.tolist(), variance.tolist()
    ([2.0, 5.0], [1.0, 0.0])
    """
    if inputs.dtype.itemsize < torch.float32.itemsize:
        inputs = inputs.float()
    count = values_per_channel(inputs)
    if is_tiny(inputs):
        mean, variance = torch.batch_norm_update_stats(inputs, None, None, 0.0)
    elif torch.compiler.is_compiling() and near is not None:
        mean, variance = _around(near, inputs, (0, *range(2, inputs.ndim)))
    elif inputs.device.type != "cpu" or inputs.requires_grad or torch.compiler.is_compiling():
        axes = (0, *range(2, inputs.ndim))
        variance, mean = torch.var_mean(inputs, dim=axes, correction=0)
    else:  # torch.var_mean is not vectorized on CPUs
        mean, variance = pool_images(measure_images(inputs))
    if correction:
        variance = variance * (count / (count - correction))
    return ChannelStatistics(mean, variance)


def measure_images(inputs: Tensor, near: Tensor | None = None) -> ChannelStatistics:
    """Mean and biased variance per image and channel, over its positions: (image, channel) each.

    inputs and near: as in `measure`. An image without positions has variance 0.
    """
    if inputs.dtype.itemsize < torch.float32.itemsize:
        inputs = inputs.float()
    if inputs.ndim == 2:
        return ChannelStatistics(inputs, torch.zeros_like(inputs))
    positions = tuple(range(2, inputs.ndim))
    if torch.compiler.is_compiling() and near is not None:
        return _around(near, inputs, positions)
    if inputs.device.type != "cpu" or inputs.requires_grad or torch.compiler.is_compiling():
        variance, mean = torch.var_mean(inputs, dim=positions, correction=0)
        return ChannelStatistics(mean, variance)
    count = float(inputs.shape[2:].numel())  # torch would convert an int each time
    mean = inputs.sum(dim=positions).div_(count)
    if inputs.is_contiguous():
        squares = torch.linalg.vector_norm(inputs, dim=positions).square_().div_(count)
        variance = torch.addcmul(squares, mean, mean, value=-1)
        if not (variance < squares * _CANCELLATION).any():
            return ChannelStatistics(mean, variance)
    # Channels last, or a mean so large that the difference would lose digits.
    return ChannelStatistics(mean, _squared_deviations(inputs, mean, positions).div_(count))


def pool_images(images: ChannelStatistics) -> ChannelStatistics:
    """Mean and biased variance over all values, from those of each image (`measure_images`)."""
    if len(images.mean) == 1:
        return ChannelStatistics(images.mean[0], images.variance[0])
    mean = images.mean.mean(dim=0)
    between = (images.mean - mean).square_().mean(dim=0)
    return ChannelStatistics(mean, images.variance.mean(dim=0).add_(between))


def is_tiny(inputs: Tensor) -> bool:
    """Whether the single call of torch.batch_norm_update_stats is the fastest way to measure."""
    return (
        inputs.numel() <= 2**14
        and inputs.device.type == "cpu"
        and inputs.dtype in (torch.float32, torch.float64)
        and not inputs.requires_grad
        and inputs.is_contiguous()
        and not torch.compiler.is_compiling()
    )


def _around(near: Tensor, inputs: Tensor, axes: tuple[int, ...]) -> ChannelStatistics:
    """Mean and variance in one sweep, from distances to `near`, so that little cancels."""
    distance = inputs - near.view(-1, *(1 for _ in range(2, inputs.ndim)))
    mean = distance.mean(dim=axes)
    return ChannelStatistics(near + mean, distance.square().mean(dim=axes) - mean.square())


_CANCELLATION = 0.02  # a mean of 7 deviations; the difference keeps five of float32's seven digits


def _squared_deviations(inputs: Tensor, mean: Tensor, positions: tuple[int, ...]) -> Tensor:
    """Sums over the positions of (inputs - mean) ** 2, in chunks that stay in the cache."""
    centers = mean.view(*mean.shape, *(1 for _ in positions))
    images = max(1, _CHUNK * inputs.shape[0] // inputs.numel())
    parts = zip(inputs.split(images), centers.split(images), strict=True)
    return torch.cat([(part - each).square_().sum(dim=positions) for part, each in parts])


_CHUNK = 2**19  # values


def values_per_channel(inputs: Tensor) -> int:
    """The number of values per channel: images times positions."""
    return inputs.numel() // inputs.shape[1]


def moving_average(
    previous: ChannelStatistics, current: ChannelStatistics, momentum: float
) -> ChannelStatistics:
    """One step of TEMA (Eq. 3 and 4); the variance, not its root, is averaged.

        average = momentum * current + (1 - momentum) * previous

    momentum: weight of the current batch, as in torch; 1.0 forgets the past.
    """
    return ChannelStatistics(
        torch.lerp(previous.mean, current.mean, momentum),
        torch.lerp(previous.variance, current.variance, momentum),
    )


def advance_(average: ChannelStatistics, inputs: Tensor, momentum: float) -> None:
    """`moving_average` with the unbiased statistics of the inputs, in place.

    torch's BatchNorm does the same in training, so tiny inputs take one call of its kernel.
    """
    if is_tiny(inputs) and inputs.dtype is average.mean.dtype:
        torch.batch_norm_update_stats(inputs, *average, momentum)
        return
    mean, variance = measure(inputs, correction=1, near=average.mean)
    average.mean.lerp_(mean, momentum)
    average.variance.lerp_(variance, momentum)


def interpolate(
    source: ChannelStatistics, target: ChannelStatistics, source_weight: float | Tensor
) -> ChannelStatistics:
    """Linear combination of mean and variance, as alpha-BN and AdaptBN use it.

    source_weight * source + (1 - source_weight) * target
    """
    return ChannelStatistics(
        torch.lerp(target.mean, source.mean, source_weight),
        torch.lerp(target.variance, source.variance, source_weight),
    )


def mix(
    source: ChannelStatistics, target: ChannelStatistics, source_weight: float | Tensor
) -> ChannelStatistics:
    """Mean and variance of a mixture of the two distributions (Eq. 6 and 7).

        mean     = w * source.mean + (1 - w) * target.mean
        variance = w * source.variance + (1 - w) * target.variance
                   + w * (1 - w) * (source.mean - target.mean) ** 2        with w = source_weight

    >>> zero, one, two = torch.tensor([[0.0], [1.0], [2.0]], device="cpu")
    >>> found = mix(ChannelStatistics(zero, one), ChannelStatistics(two, one), 0.5)
    >>> [statistic.item() for statistic in found]
    [1.0, 2.0]
    """
    mean = torch.lerp(target.mean, source.mean, source_weight)
    variance = torch.lerp(target.variance, source.variance, source_weight)
    # w (1 - w) (difference of the means) ** 2, from the distances that the mean has moved.
    spread = (mean - target.mean, source.mean - mean)
    return ChannelStatistics(mean, variance.addcmul_(*spread))


def merge(counts: Tensor, means: Tensor, squares: Tensor, correction: int) -> ChannelStatistics:
    """Mean and variance of all parts together, from those of each (Chan 1979).

        mean     = sum of counts * means / total
        variance = sum of (squares + counts * (means - mean) ** 2) / (total - correction)

    counts: (part, 1). means, squares: (part, channel); squares are summed squared deviations.

    >>> one, two = torch.tensor([[[1.0], [1.0]], [[1.0], [3.0]]], device="cpu")
    >>> [statistic.item() for statistic in merge(one, two, 0 * one, correction=1)]
    [2.0, 2.0]
    """
    total = counts.sum()
    mean = (counts * means).sum(dim=0) / total  # (channel,)
    deviations = squares + counts * (means - mean).square()
    return ChannelStatistics(mean, deviations.sum(dim=0) / (total - correction))


def pool(parts: Sequence[tuple[ChannelStatistics, int]], correction: int = 0) -> ChannelStatistics:
    """`merge` of statistics with a variance of the given correction, each with its count."""
    (first, _), *others = parts
    if not others:
        return first
    counts = first.mean.new_tensor([[count] for _, count in parts])  # (part, 1)
    means = torch.stack([statistics.mean for statistics, _ in parts])
    variances = torch.stack([statistics.variance for statistics, _ in parts])
    return merge(counts, means, variances * (counts - correction), correction)
