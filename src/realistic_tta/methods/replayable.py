"""Whether a method on a network can be replayed (replay.py), and if not, why."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from realistic_tta.layers.network import is_batch_norm

from .base import AdaptedModel
from .batch_norm_method import BatchNormMethod
from .rectified_tema import RectifiedTema
from .replay import REPLAYS, names

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def why_not(adapted: AdaptedModel, images: Tensor) -> str | None:
    """Why this method on this network must be run batch by batch; None if it can be replayed.

    images: two or more to try the network with. They teach the method nothing.
    """
    return (
        _why_not_this_method(adapted)
        or _why_not_these_layers(adapted)
        or _why_not_together(adapted, images)
    )


def _why_not_this_method(adapted: AdaptedModel) -> str | None:
    if adapted.guard is not None:
        return "a guard judges batch by batch who answers"
    if type(adapted) not in REPLAYS:
        return f"{adapted.name} is none of {names()}"
    if isinstance(adapted, BatchNormMethod) and adapted.robust:
        return "robust statistics are measured image by image, in the batch they came in"
    if isinstance(adapted, RectifiedTema) and adapted.settings.second_pass != "always":  # noqa: S105
        return "a second pass that is taken when needed is decided batch by batch"
    return None


def _why_not_these_layers(adapted: AdaptedModel) -> str | None:
    for name, layer in _batch_norms(adapted).items():
        kind = type(layer).__name__
        if layer.running_mean is None:
            return f'layer "{name}" ({kind}) has no source statistics'
        if isinstance(adapted, BatchNormMethod) and type(layer) not in _PLAIN:
            return f'layer "{name}" ({kind}) does more than normalise'
    return None


def _batch_norms(adapted: AdaptedModel) -> dict[str, nn.Module]:
    """The network's own, by name."""
    if isinstance(adapted, BatchNormMethod):
        return {layer.name: layer.layer for layer in adapted.layers}
    return {name: each for name, each in adapted.network.named_modules() if is_batch_norm(each)}


def _why_not_together(adapted: AdaptedModel, images: Tensor) -> str | None:
    """Tries whether the network treats images one by one, and meets every layer once."""
    layers = adapted.layers if isinstance(adapted, BatchNormMethod) else []
    uses = Counter({layer.name: 0 for layer in layers})
    hooks = [
        layer.register_forward_hook(lambda layer, *_: uses.update([layer.name])) for layer in layers
    ]
    try:
        with torch.no_grad():
            together = adapted.network(images)
    finally:
        for hook in hooks:
            hook.remove()
    for name, count in uses.items():
        if count != 1:
            return f'layer "{name}" is used {count} times in one pass'
    if not isinstance(together, Tensor) or len(together) != len(images):
        return "the network does not return one row of numbers an image"
    with torch.no_grad():
        alone = torch.cat([adapted.network(image) for image in images.split(1)])
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4):
        return "the network's output for an image depends on the images beside it"
    return None
