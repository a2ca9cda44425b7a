"""Finds the BatchNorm layers of any network, puts adaptive ones in their place, and undoes it.

methods/batch_norm_method.py calls `replace_batch_norms` on its own copy of a network, and
`restore_batch_norms` when it freezes one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from .adaptive_batch_norm import AdaptiveBatchNorm


def is_batch_norm(module: nn.Module) -> bool:
    """Whether the module normalises by channel statistics that it carries or measures.

    That is torch's BatchNorm family with all subclasses, and look-alikes such as torchvision's
    FrozenBatchNorm2d, which shares no class with it but keeps the same buffers.
    """
    if isinstance(module, AdaptiveBatchNorm):  # looks like the layer it stands for
        return False
    if isinstance(module, _BatchNorm):
        return True
    buffers = (getattr(module, name, None) for name in ("running_mean", "running_var"))
    return "BatchNorm" in type(module).__name__ and all(isinstance(b, Tensor) for b in buffers)


def replace_batch_norms(network: nn.Module) -> tuple[nn.Module, list[AdaptiveBatchNorm]]:
    """Puts an adaptive layer in place of every BatchNorm, in place; returns root and layers.

    The root is the network itself, unless that is a BatchNorm. A module that stands in several
    places is replaced by one adaptive layer in all of them.
    """
    found = {name: module for name, module in network.named_modules() if is_batch_norm(module)}
    adaptive = {id(module): AdaptiveBatchNorm(module, name) for name, module in found.items()}
    return _swap(network, adaptive), list(adaptive.values())


def restore_batch_norms(network: nn.Module) -> nn.Module:
    """Puts the BatchNorm layers back, in place; returns the root."""
    originals = {
        id(module): module.layer
        for module in network.modules()
        if isinstance(module, AdaptiveBatchNorm)
    }
    return _swap(network, originals)


def _swap(network: nn.Module, replacements: Mapping[int, nn.Module]) -> nn.Module:
    for parent in list(network.modules()):
        if id(parent) in replacements:
            continue
        for name, child in parent._modules.items():  # noqa: SLF001 - named_children drops repeats
            if id(child) in replacements:
                parent._modules[name] = replacements[id(child)]  # noqa: SLF001
    return replacements.get(id(network), network)


def other_normalizations(network: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Name, layer and reason of everything that normalises but is not adapted."""
    for name, module in network.named_modules():
        if isinstance(module, AdaptiveBatchNorm) or is_batch_norm(module):
            continue
        if isinstance(module, torch.jit.ScriptModule):
            yield name, module, "TorchScript: the layers inside cannot be replaced"
        elif isinstance(module, _InstanceNorm) and module.track_running_stats:
            yield name, module, "running statistics of an InstanceNorm are not adapted"
        elif _NORMALIZATION.search(type(module).__name__):
            yield name, module, "normalises each image by itself; a batch tells it nothing"


# GroupNorm, LayerNorm2d, GroupNormAct; not Normalize, nor what normalises weights.
_NORMALIZATION = re.compile(r"(?<!Weight)(?<!Spectral)Norm(Act)?(\d[dD])?$")


def affine_layers(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Name and layer of everything that normalises and then scales or shifts by parameters."""
    for name, module in layers_with_parameters(network):
        if isinstance(module, _PER_IMAGE) or is_batch_norm(module):
            yield name, module


def layers_with_parameters(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Name and layer of everything that has parameters of its own.

    The names are those of the original network, whether its BatchNorms are replaced or not.
    """
    for name, module in network.named_modules():
        if any(isinstance(own, nn.Parameter) for own in module.parameters(recurse=False)):
            yield original_name(network, name), module


def original_name(network: nn.Module, name: str) -> str:
    """The name of a module without the adaptive layers on the way to it."""
    parts = []
    module: nn.Module | None = network
    for part in name.split("."):
        assert module is not None
        if part and not isinstance(module, AdaptiveBatchNorm):
            parts.append(part)
        module = module._modules.get(part)  # noqa: SLF001 - get_submodule would start anew
    return ".".join(parts)


_PER_IMAGE = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _InstanceNorm)


def describe_affine(network: nn.Module) -> str:
    """What a network has where `affine_layers` finds nothing, in words."""
    kinds = [type(m.layer).__name__ for m in network.modules() if isinstance(m, AdaptiveBatchNorm)]
    kinds += [type(module).__name__ for _, module, _ in other_normalizations(network)]
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())
    return f"{counts} without parameters" if counts else "no normalisation at all"


def describe_missing(network: nn.Module) -> str:
    """What a network without BatchNorm has instead, in words."""
    kinds = Counter(type(module).__name__ for _, module, _ in other_normalizations(network))
    instead = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"the network has no BatchNorm layer; it has {instead or 'no normalisation at all'}"
