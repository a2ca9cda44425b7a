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


def measure(inputs: Tensor, correction: int = 0, near: Tensor | None = None) -> ChannelStatistics:
    """Mean and variance of each channel over images and positions, in float32 or better.

        mean = average of inputs
        variance = sum of (inputs - mean) ** 2 / (count - correction)

    inputs: (image, channel) or (image, channel, *positions).
    correction: 0 for the biased variance that torch normalises with in training, 1 for the
    unbiased one that it keeps in running_var.
    near: a mean that the inputs' will be close to, (channel,); a compiled graph is faster with it.

    >>> mean, variance = measure(torch.tensor([[1.0, 5.0], [3.0, 5.0]], device="cpu"))
    >>> mean.tolist(), variance.tolist()
    ([2.0, 5.0], [1.0, 0.0])
    """
    if inputs.dtype.itemsize < torch.float32.itemsize:
        inputs = inputs.float()
    if is_small(inputs):
        return _by_torchs_kernel(inputs, correction)
    if torch.compiler.is_compiling():
        if near is not None:
            return _in_one_shifted_sweep(inputs, correction, near)
        return _in_two_sweeps(inputs, correction)
    if inputs.device.type != "cpu" or inputs.requires_grad:
        variance, mean = torch.var_mean(inputs, dim=_all_but_channel(inputs), correction=correction)
        return ChannelStatistics(mean, variance)
    # torch's var_mean is not vectorised on a CPU. Each of these is several times faster, and as
    # exact; docs/performance.md says when each is taken.
    if inputs.ndim == 2 or not inputs.is_contiguous():
        return _in_two_sweeps(inputs, correction)
    return _in_one_sweep(inputs, correction) or _in_two_sweeps(inputs, correction)


def is_small(inputs: Tensor) -> bool:
    """Whether torch's own kernel for BatchNorm's training is the fastest way to measure.

    It is not vectorised, but one call, where a call costs more than the work.
    """
    return (
        inputs.numel() <= 2**16
        and inputs.device.type == "cpu"
        and inputs.dtype in _WIDE
        and not inputs.requires_grad
        and inputs.is_contiguous()
        and not torch.compiler.is_compiling()
    )


_WIDE = (torch.float32, torch.float64)


def _by_torchs_kernel(inputs: Tensor, correction: int) -> ChannelStatistics:
    """What BatchNorm's training measures with: one call, sums in float64, but not vectorised."""
    mean, variance = torch.batch_norm_update_stats(inputs, None, None, 0.0)
    if correction:
        count = values_per_channel(inputs)
        variance.mul_(count / (count - correction))
    return ChannelStatistics(mean, variance)


def _in_one_sweep(inputs: Tensor, correction: int) -> ChannelStatistics | None:
    """From sum and sum of squares; None where a mean far above the deviation costs digits."""
    inner = tuple(range(2, inputs.ndim))
    count = float(values_per_channel(inputs))
    total = inputs.sum(dim=(0, *inner))  # (channel,)
    mean = total / count
    lengths = torch.linalg.vector_norm(inputs, dim=inner)  # (image, channel)
    squares = lengths.square_().sum(dim=0)
    deviations = torch.addcmul(squares, mean, total, value=-1)
    if (deviations < squares * _DIGITS).any():
        return None
    return ChannelStatistics(mean, deviations.div_(count - correction))


_DIGITS = 0.02  # a mean of 7 deviations: subtracting leaves 1/50, five digits of float32's seven


def _in_one_shifted_sweep(inputs: Tensor, correction: int, near: Tensor) -> ChannelStatistics:
    """From sum and sum of squares of the distance to `near`: what is subtracted is small."""
    axes = _all_but_channel(inputs)
    count = float(values_per_channel(inputs))
    distance = inputs - near.view(-1, *(1 for _ in axes[1:]))
    total = distance.sum(dim=axes)  # (channel,)
    squares = distance.square().sum(dim=axes)
    mean = total / count
    return ChannelStatistics(near + mean, (squares - mean * total) / (count - correction))


def _in_two_sweeps(inputs: Tensor, correction: int) -> ChannelStatistics:
    """The mean first, so that one far larger than the deviation costs no digits; any layout."""
    axes = _all_but_channel(inputs)
    count = float(values_per_channel(inputs))  # torch would convert a whole number each time
    mean = inputs.sum(dim=axes, keepdim=True) / count
    if inputs.numel() <= _PART or torch.compiler.is_compiling():
        squares = (inputs - mean).square().sum(dim=axes)  # (channel,)
    else:  # in parts that stay in the cache
        images = max(1, _PART * inputs.shape[0] // inputs.numel())
        parts = [(part - mean).square_().sum(dim=axes) for part in inputs.split(images)]
        squares = torch.stack(parts).sum(dim=0)
    return ChannelStatistics(mean.view(-1), squares / (count - correction))


_PART = 2**19  # values; larger and smaller parts measured slower


def _all_but_channel(inputs: Tensor) -> tuple[int, ...]:
    return (0, *range(2, inputs.ndim))


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


def advance_(average: ChannelStatistics, inputs: Tensor, momentum: float) -> None:
    """`moving_average` with what `measure` finds in the inputs, unbiased, in place.

    torch's BatchNorm does the same in training: small inputs are left to its kernel, in one call.
    """
    if is_small(inputs) and inputs.dtype is average.mean.dtype:
        torch.batch_norm_update_stats(inputs, *average, momentum)
        return
    mean, variance = measure(inputs, correction=1, near=average.mean)
    average.mean.lerp_(mean, momentum)
    average.variance.lerp_(variance, momentum)


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
    mean = torch.lerp(target.mean, source.mean, source_weight)
    variance = torch.lerp(target.variance, source.variance, source_weight)
    # w (1 - w) gap^2, from the distances that the mean has moved: one operation fewer a layer.
    spread = (mean - target.mean, source.mean - mean)
    return ChannelStatistics(mean, variance.addcmul_(*spread))


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
