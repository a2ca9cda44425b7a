"""From source and target statistics to each layer's source weight (paper, Algorithm 1, stages 1-2).

Used by methods/rectified_tema.py. The functions take the channels of all layers in one flat tensor,
so that a model costs a handful of operations, however many layers it has.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .channel_statistics import ChannelStatistics

VARIANCE_FLOOR = 1e-5  # added to every variance before dividing by it
MAX_SOURCE_WEIGHT = 0.5  # the paper's gamma: the target keeps at least half
PRIOR_MOMENTUM = 0.1  # the paper's tau


def channel_divergence(source: ChannelStatistics, target: ChannelStatistics) -> Tensor:
    """Symmetric Kullback-Leibler divergence of two Gaussians, for each channel.

        1/2 KL(source || target) + 1/2 KL(target || source)
            = ((v_s - v_t)^2 + (mu_s - mu_t)^2 (v_s + v_t)) / (4 v_s v_t)

    with 1e-5 added to every variance. Algorithm 1, line 7; this form has no canceling terms.
    """
    source_variance = source.variance + VARIANCE_FLOOR
    target_variance = target.variance + VARIANCE_FLOOR
    spread = (source_variance - target_variance).square()
    shift = (source.mean - target.mean).square() * (source_variance + target_variance)
    return (spread + shift) / (4 * source_variance * target_variance)


def divergence(source: ChannelStatistics, target: ChannelStatistics, channels: Tensor) -> Tensor:
    """Divergence of each layer: the sum over its channels, diagonal Gaussians being independent.

    source, target: statistics of all layers, one after another, (all channels,).
    channels: how many channels each layer has, (layer,), whole numbers. Returns (layer,).
    """
    each = channel_divergence(source, target)  # (all channels,)
    return torch.segment_reduce(each, "sum", lengths=channels, unsafe=True)  # (layer,)


def source_weights(
    divergences: Tensor, used: list[int] | None = None, maximum: float = MAX_SOURCE_WEIGHT
) -> Tensor:
    """Relative divergence per layer, as the weight of its source statistics (stage 2).

        source_weight = maximum * (clip(z, -1, 1) + 1) / 2

    with z the z-score over the layers (population standard deviation): a layer that has moved
    further than the others gets more of its source. Where the divergences do not differ, as with a
    single layer, z is 0.

    used: the indices of the layers to compare; None for all. The others get weight 1.

    >>> source_weights(torch.tensor([1.0, 2.0, 3.0], device="cpu")).tolist()
    [0.0, 0.25, 0.5]
    """
    if used == []:
        return torch.ones_like(divergences)
    compared = divergences if used is None else divergences[used]
    above = compared - compared.min()  # exact where they are close, and 0 where equal
    variance, mean = torch.var_mean(above, correction=0)
    relative = torch.nan_to_num((above - mean) / variance.sqrt(), nan=0.0)
    weights = torch.clamp(relative, -1, 1).add_(1).mul_(maximum / 2)
    if used is None:
        return weights
    placed = torch.ones_like(divergences)
    placed[used] = weights
    return placed


def update_prior(
    prior: Tensor,
    weights: Tensor,
    used: list[int] | None = None,
    momentum: float = PRIOR_MOMENTUM,
) -> Tensor:
    """The global prior after a batch (stage 4); unchanged in layers that are not used.

    prior = momentum * weights + (1 - momentum) * prior
    """
    updated = torch.lerp(prior, weights, momentum)
    if used is None:
        return updated
    placed = prior.clone()
    placed[used] = updated[used]
    return placed
