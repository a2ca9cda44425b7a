"""Statistics of many small batches that went through a network together: one row a batch.

Convolutions treat images one by one, so small batches may share one large forward, if each layer
still tells them apart. What follows from batch to batch is a moving average, and that is a product
with a triangular matrix. normalization/replay_rules.py is built from these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from .channel_statistics import ChannelStatistics
from .rectification import channel_divergence, source_weights

_PART = 2**18  # values that are measured together, so that they stay in the cache


class Batches(NamedTuple):
    """Which images make up which batch.

    sizes: (batch,), images of each. of_image: (image,), its batch. members: (batch, image), 1 or 0.
    """

    sizes: Tensor
    of_image: Tensor
    members: Tensor

    @classmethod
    def of(cls, sizes: Sequence[int], like: Tensor) -> Self:
        """Batches of these sizes, one after another, for statistics such as `like`."""
        counts = torch.tensor(sizes, device=like.device)
        numbers = torch.arange(len(sizes), device=like.device)  # (batch,)
        of_image = numbers.repeat_interleave(counts, output_size=sum(sizes))
        return cls(counts.to(like), of_image, (numbers[:, None] == of_image).to(like))


def measure_each(inputs: Tensor, batches: Batches, correction: int = 0) -> ChannelStatistics:
    """`measure` of every batch by itself: mean and variance, (batch, channel).

        mean = average of the images' means
        variance = sum of (image.variance + (image.mean - mean) ** 2) * positions
                   / (positions * images - correction)

    inputs: (image, channel) or (image, channel, *positions), the images of all batches.

    >>> inputs = torch.tensor([[1.0], [3.0], [5.0]], device="cpu")
    >>> mean, variance = measure_each(inputs, Batches.of([2, 1], inputs))
    >>> mean.tolist(), variance.tolist()
    ([[2.0], [5.0]], [[1.0], [0.0]])
    """
    if inputs.dtype.itemsize < torch.float32.itemsize:
        inputs = inputs.float()
    means, variances = measure_images(inputs)  # (image, channel)
    positions = inputs.shape[2:].numel()
    images = batches.sizes[:, None]  # (batch, 1)
    mean = batches.members @ means / images  # (batch, channel)
    spread = variances + (means - mean[batches.of_image]).square()
    squares = batches.members @ spread * positions
    return ChannelStatistics(mean, squares / (images * positions - correction))


def measure_images(inputs: Tensor) -> ChannelStatistics:
    """Mean and biased variance of each image's channels, (image, channel)."""
    if inputs.ndim == 2:
        return ChannelStatistics(inputs, torch.zeros_like(inputs))
    images = max(1, _PART * len(inputs) // inputs.numel())
    means, variances = zip(*map(_measure_part, inputs.split(images)), strict=True)
    return ChannelStatistics(torch.cat(means), torch.cat(variances))


def _measure_part(inputs: Tensor) -> ChannelStatistics:
    """In two sweeps, so that no subtraction costs digits."""
    positions = tuple(range(2, inputs.ndim))
    mean = inputs.mean(dim=positions, keepdim=True)  # (image, channel, 1, ...)
    variance = (inputs - mean).square_().mean(dim=positions)
    return ChannelStatistics(mean.flatten(start_dim=1), variance)


def average_weights(momenta: Sequence[float], like: Tensor) -> Tensor:
    """What the start and each batch weigh in the moving average after each batch.

        weights[t, 0]     = product of (1 - momentum) over the batches up to t
        weights[t, s + 1] = momentum[s] * product of (1 - momentum) over the batches from s + 1 to t

    momenta: (batch,), the weight of each batch when it came. Returns (batch, 1 + batch).

    >>> average_weights([0.5, 0.5], torch.zeros(1, device="cpu")).tolist()
    [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]
    """
    row = [1.0] + [0.0] * len(momenta)
    rows = []
    for place, momentum in enumerate(momenta, start=1):
        row = [weight * (1 - momentum) for weight in row]
        row[place] = momentum
        rows.append(row)
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def average_each(start: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """The moving average after each batch, (batch, channel).

    start: (channel,), before the first. values: (batch, channel). weights: of `average_weights`.
    """
    return weights @ torch.cat([start[None], values])


def source_weights_each(
    source: ChannelStatistics, target: ChannelStatistics, channels: Tensor
) -> Tensor:
    """The layers' source weights that each batch calls for (Algorithm 1, stage 2).

    source: (all channels,). target: (batch, all channels). channels: (layer,), of each.
    Returns (batch, layer).
    """
    each = channel_divergence(source, target)  # (batch, all channels)
    lengths = channels.expand(len(each), -1).contiguous()
    divergences = torch.segment_reduce(each, "sum", lengths=lengths, axis=1, unsafe=True)
    return torch.stack([source_weights(row) for row in divergences])
