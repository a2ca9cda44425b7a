"""Images made to drag the statistics of a network's BatchNorm layers away from the source's.

Whoever sends them knows the network. Nothing is trained: some steps uphill on the images' own
values, and the images can be sent to any method. Used by samples.py.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from realistic_tta.statistics.channel_statistics import ChannelStatistics, measure
from realistic_tta.statistics.rectification import channel_divergence

KINDS = 8  # different images; the others of a stream are these again
STEPS = 20
STEP = 0.1  # of the range of values


def crafted(
    good: Tensor, network: nn.Module, generator: torch.Generator, *, low: float, high: float
) -> Tensor:
    """As many images as `good` has, with values from low to high."""
    noise = torch.rand(KINDS, *good.shape[1:], generator=generator, dtype=good.dtype)
    images = uphill(low + (high - low) * noise, network, low, high)
    return images[torch.arange(len(good)) % KINDS]


def uphill(images: Tensor, network: nn.Module, low: float, high: float) -> Tensor:
    """The images after all steps; each goes by the sign of `pull`'s gradient."""
    for _ in range(STEPS):
        images = images.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(pull(images, network), images)
        images = (images + STEP * (high - low) * gradient.sign()).clamp(low, high)
    return images.detach()


def pull(images: Tensor, network: nn.Module) -> Tensor:
    """How far the images' statistics lie from the source's: a number.

        pull = sum over layers of log(mean over channels of divergence(source, images))

    The logarithm, so that no layer is forgotten for the one that can be moved furthest.
    """
    found: list[Tensor] = []

    def look(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(layer, _BatchNorm)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        source = ChannelStatistics(layer.running_mean, layer.running_var)
        found.append(channel_divergence(source, measure(inputs[0])).mean().log())

    layers = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    hooks = [layer.register_forward_pre_hook(look) for layer in layers]
    try:
        network(images)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(found).sum()
