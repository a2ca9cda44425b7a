"""Images made to drag the statistics of a network's BatchNorm layers away from the source's.

Whoever sends them knows the network. Nothing is trained: some steps uphill on the images' own
values, and the images can be sent to any method. Used by samples.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from realistic_tta.functional.channel_statistics import ChannelStatistics, measure
from realistic_tta.functional.rectification import VARIANCE_FLOOR, channel_divergence
from realistic_tta.functional.trust import moments_about, remoteness, trust

KINDS = 8  # different images; the others of a stream are these again
STEPS = 20
STEP = 0.1  # of the range of values


Distance = Callable[[ChannelStatistics, Tensor], Tensor]  # of a layer's inputs from its source


def divergence(source: ChannelStatistics, inputs: Tensor) -> Tensor:
    """The paper's, mean over channels."""
    return channel_divergence(source, measure(inputs)).mean()


def trusted_divergence(source: ChannelStatistics, inputs: Tensor) -> Tensor:
    """How far the images move the means if each counts as it is trusted, mean over channels."""
    moments = moments_about(inputs, source.mean)  # (image, 2, channel)
    weights = trust(remoteness(moments, source.variance))[:, None]  # (image, 1)
    moved = (weights * moments[:, 0]).mean(dim=0)  # (channel,)
    return (moved.square() / (source.variance + VARIANCE_FLOOR)).mean()


def crafted(
    good: Tensor, network: nn.Module, generator: torch.Generator, *, low: float, high: float
) -> Tensor:
    """As many images as `good` has, with values from low to high."""
    noise = torch.rand(KINDS, *good.shape[1:], generator=generator, dtype=good.dtype)
    images = uphill(low + (high - low) * noise, network, low, high)
    return images[torch.arange(len(good)) % KINDS]


def crafted_to_be_trusted(good: Tensor, network: nn.Module, generator: torch.Generator) -> Tensor:
    """By one who knows what `robust=True` trusts: photographs, and small steps away from them."""
    low, high = good.min().item(), good.max().item()
    chosen = good[torch.randint(len(good), (KINDS,), generator=generator)]
    images = uphill(chosen, network, low, high, distance=trusted_divergence, step=STEP / 5)
    return images[torch.arange(len(good)) % KINDS]


def uphill(
    images: Tensor,
    network: nn.Module,
    low: float,
    high: float,
    *,
    distance: Distance = divergence,
    step: float = STEP,
) -> Tensor:
    """The images after all steps; each goes by the sign of `pull`'s gradient."""
    for _ in range(STEPS):
        images = images.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(pull(images, network, distance), images)
        images = (images + step * (high - low) * gradient.sign()).clamp(low, high)
    return images.detach()


def pull(images: Tensor, network: nn.Module, distance: Distance = divergence) -> Tensor:
    """How far the images' statistics lie from the source's: a number.

        pull = sum over layers of log(distance(source, images))

    The logarithm, so that no layer is forgotten for the one that can be moved furthest.
    """
    found: list[Tensor] = []

    def look(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(layer, _BatchNorm)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        source = ChannelStatistics(layer.running_mean, layer.running_var)
        found.append(distance(source, inputs[0]).log())

    layers = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    hooks = [layer.register_forward_pre_hook(look) for layer in layers]
    try:
        network(images)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(found).sum()
