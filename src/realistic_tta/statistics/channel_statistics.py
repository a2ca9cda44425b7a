"""Mean and variance of each channel: measured, averaged over time, combined with the source's.

The rules in normalization/statistics_rules.py are built from these functions. All are pure, and
device and dtype follow their arguments. Two formulas, two names: `interpolate` is linear (alpha-BN,
AdaptBN); `mix` adds the spread between the two means (the paper's Eq. 7).
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


def measure(inputs: Tensor, correction: int = 0) -> ChannelStatistics:
    """Mean and variance of each channel over images and positions, in float32 or better.

        mean = average of inputs
        variance = sum of (inputs - mean) ** 2 / (count - correction)

    inputs: (image, channel) or (image, channel, *positions).
    correction: 0 for the biased variance that torch normalises with in training, 1 for the
    unbiased one that it keeps in running_var.

    >>> mean, variance = measure(torch.tensor([[1.0, 5.0], [3.0, 5.0]], device="cpu"))
    >>> mean.tolist(), variance.tolist()
    ([2.0, 5.0], [1.0, 0.0])
    """
    if inputs.dtype.itemsize < torch.float32.itemsize:
        inputs = inputs.float()
    axes = (0, *range(2, inputs.ndim))
    if inputs.device.type != "cpu":
        variance, mean = torch.var_mean(inputs, dim=axes, correction=correction)
        return ChannelStatistics(mean, variance)
    # torch's var_mean is not vectorised on a CPU; this is several times faster and as exact: the
    # mean comes first, so that one far larger than the deviation costs no digits.
    count = float(
        values_per_channel(inputs)
    )  # a float, for torch converts a whole number each time
    mean = inputs.sum(dim=axes, keepdim=True) / count
    squares = _squared_deviations(inputs, mean, axes)  # (channel,)
    return ChannelStatistics(mean.view(-1), squares / (count - correction))


def _squared_deviations(inputs: Tensor, mean: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Sum of (inputs - mean) ** 2 over the axes; large inputs in parts that stay in the cache."""
    if inputs.numel() <= _PART:
        return (inputs - mean).square_().sum(dim=axes)
    images = max(1, _PART * inputs.shape[0] // inputs.numel())
    parts = [(part - mean).square_().sum(dim=axes) for part in inputs.split(images)]
    return torch.stack(parts).sum(dim=0)


_PART = 2**19  # values; larger and smaller parts measured slower


def values_per_channel(inputs: Tensor) -> int:
    """How many values each channel has: images times positions."""
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


def interpolate(
    source: ChannelStatistics, target: ChannelStatistics, source_weight: float | Tensor
) -> ChannelStatistics:
    """Linear combination, of mean and of variance: what alpha-BN and AdaptBN use.

    source_weight * source + (1 - source_weight) * target
    """
    return ChannelStatistics(
        torch.lerp(target.mean, source.mean, source_weight),
        torch.lerp(target.variance, source.variance, source_weight),
    )


def mix(
    source: ChannelStatistics, target: ChannelStatistics, source_weight: float | Tensor
) -> ChannelStatistics:
    """Mean and variance of the two distributions poured together (Eq. 6 and 7).

        mean     = w * source.mean + (1 - w) * target.mean
        variance = w * source.variance + (1 - w) * target.variance
                   + w * (1 - w) * (source.mean - target.mean) ** 2        with w = source_weight

    >>> zero, one, two = torch.tensor([[0.0], [1.0], [2.0]], device="cpu")
    >>> found = mix(ChannelStatistics(zero, one), ChannelStatistics(two, one), 0.5)
    >>> [statistic.item() for statistic in found]
    [1.0, 2.0]
    """
    mean, variance = interpolate(source, target, source_weight)
    # w (1 - w) gap^2, from the distances that the mean has moved: one operation fewer a layer.
    spread = (mean - target.mean, source.mean - mean)
    return ChannelStatistics(mean, torch.addcmul(variance, *spread))


def pool(
    first: ChannelStatistics, first_count: int, second: ChannelStatistics, second_count: int
) -> ChannelStatistics:
    """Biased statistics of two sets of values taken together, from those of each (Eq. 6 and 7)."""
    return mix(first, second, first_count / (first_count + second_count))


def pool_all(parts: Sequence[tuple[ChannelStatistics, int]]) -> ChannelStatistics:
    """`pool` of any number of sets at once; each with its count of values.

    mean = sum of share * part.mean;  variance = sum of share * (part.variance + distance ** 2)
    share: a part's count over all of them. distance: of its mean from the common one.
    """
    means = torch.stack([statistics.mean for statistics, _ in parts])  # (part, channel)
    variances = torch.stack([statistics.variance for statistics, _ in parts])
    total = sum(count for _, count in parts)
    shares = means.new_tensor([count / total for _, count in parts])
    mean = shares @ means  # (channel,)
    return ChannelStatistics(mean, shares @ (variances + (means - mean).square()))


def rescale(statistics: ChannelStatistics, divisor: int, by: int) -> ChannelStatistics:
    """The same mean; the variance's divisor exchanged, as count for count - 1."""
    return ChannelStatistics(statistics.mean, statistics.variance * (divisor / by))
