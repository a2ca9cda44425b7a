"""Finds the BatchNorm layers of a model, replaces them by adaptive ones, and restores them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from .adaptive_batch_norm import AdaptiveBatchNorm, RuleSlot


def is_batch_norm(module: nn.Module) -> bool:
    """Whether the module normalizes by channel statistics.

    This is torch's BatchNorm family with all subclasses, and look-alikes such as torchvision's
    FrozenBatchNorm2d, which shares no class with it but keeps the same buffers.
    """
    if isinstance(module, AdaptiveBatchNorm):  # it has the attributes of the layer that it replaces
        return False
    if isinstance(module, _BatchNorm):
        return True
    buffers = (getattr(module, name, None) for name in ("running_mean", "running_var"))
    return "BatchNorm" in type(module).__name__ and all(isinstance(b, Tensor) for b in buffers)


def replace_batch_norms(
    model: nn.Module, slot: RuleSlot
) -> tuple[nn.Module, list[AdaptiveBatchNorm]]:
    """Replaces every BatchNorm by an adaptive layer, in place; returns the root and the layers.

    The root is the model itself, unless that is a BatchNorm. A module that is used in several
    places is replaced by one adaptive layer in all of them.
    """
    found = [(name, module) for name, module in model.named_modules() if is_batch_norm(module)]
    adaptive = {
        id(module): AdaptiveBatchNorm(module, name, slot, index)
        for index, (name, module) in enumerate(found)
    }
    return _swap(model, adaptive), list(adaptive.values())


def restore_batch_norms(model: nn.Module) -> nn.Module:
    """Restores the BatchNorm layers, in place; returns the root."""
    originals = {
        id(module): module.layer
        for module in model.modules()
        if isinstance(module, AdaptiveBatchNorm)
    }
    return _swap(model, originals)


def _swap(model: nn.Module, replacements: Mapping[int, nn.Module]) -> nn.Module:
    for parent in list(model.modules()):
        if id(parent) in replacements:
            continue
        for name, child in parent._modules.items():
            if id(child) in replacements:
                parent._modules[name] = replacements[id(child)]
    return replacements.get(id(model), model)


def other_normalizations(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Name, layer and reason of every normalization layer that is not adapted."""
    for name, module in model.named_modules():
        if isinstance(module, AdaptiveBatchNorm) or is_batch_norm(module):
            continue
        if isinstance(module, torch.jit.ScriptModule):
            yield name, module, "TorchScript: the layers inside cannot be replaced"
        elif isinstance(module, _InstanceNorm) and module.track_running_stats:
            yield name, module, "running statistics of an InstanceNorm are not adapted"
        elif _NORMALIZATION.search(type(module).__name__):
            yield name, module, "normalizes each image by itself"


# GroupNorm, LayerNorm2d, GroupNormAct; not Normalize, nor weight normalization.
_NORMALIZATION = re.compile(r"(?<!Weight)(?<!Spectral)Norm(Act)?(\d[dD])?$")


def affine_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Name and layer of every normalization layer with affine parameters."""
    for name, module in layers_with_parameters(model):
        if isinstance(module, _PER_IMAGE) or is_batch_norm(module):
            yield name, module


def layers_with_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Name and layer of every module with parameters of its own.

    The names are those of the original model, whether its BatchNorms are replaced or not.
    """
    for name, module in model.named_modules():
        if any(isinstance(own, nn.Parameter) for own in module.parameters(recurse=False)):
            yield original_name(model, name), module


def original_name(model: nn.Module, name: str) -> str:
    """The name that a module has in the original model, without adaptive layers on the path."""
    parts = []
    module: nn.Module | None = model
    for part in name.split("."):
        assert module is not None
        if part and not isinstance(module, AdaptiveBatchNorm):
            parts.append(part)
        module = module._modules.get(part)
    return ".".join(parts)


_PER_IMAGE = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _InstanceNorm)


def describe_affine(model: nn.Module) -> str:
    """Describes the normalization of a model in which `affine_layers` finds nothing."""
    types = [type(module).__name__ for module in model.modules() if is_batch_norm(module)]
    types += [type(module).__name__ for _, module, _ in other_normalizations(model)]
    counts = ", ".join(f"{count} {layer_type}" for layer_type, count in Counter(types).items())
    return f"{counts} without parameters" if counts else "no normalization at all"


def describe_missing(model: nn.Module) -> str:
    """Describes the normalization of a model without BatchNorm."""
    types = Counter(type(module).__name__ for _, module, _ in other_normalizations(model))
    instead = ", ".join(f"{count} {layer_type}" for layer_type, count in types.items())
    return f"the model has no BatchNorm layer; it has {instead or 'no normalization at all'}"
