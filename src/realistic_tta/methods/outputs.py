"""Tensors inside whatever a network takes or returns: tuples, lists, mappings, objects.

A method that trains needs the logits among them, and hands them on without their gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from realistic_tta.errors import NetworkError


def logits_of(outputs: Any) -> Tensor:
    """The logits (image, class) in a network's output, in float32 or better.

    The output itself, if it is a tensor; else the first floating-point tensor of two dimensions.
    """
    found = list(tensors_in(outputs))
    for tensor in found:
        if tensor.ndim == 2 and tensor.is_floating_point():
            return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in found) or "no tensor"
    raise NetworkError(
        f"the network returned a {type(outputs).__name__} with {shapes}; expected logits of two "
        "dimensions (image, class). Wrap the network so that it returns them, or use a method "
        "that needs no logits, such as rectified_tema"
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in the value, in order."""
    if isinstance(value, Tensor):
        yield value
    for _, inner in _parts(value):
        yield from tensors_in(inner)


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same value with every tensor in it exchanged; nothing is changed in place."""
    if isinstance(value, Tensor):
        return function(value)
    parts = {key: map_tensors(function, inner) for key, inner in _parts(value)}
    if isinstance(value, tuple):
        make = getattr(
            type(value), "_make", type(value)
        )  # a named tuple takes its parts one by one
        return make(parts.values())
    if not parts:
        return value
    changed = copy.copy(value)
    for key, inner in parts.items():
        if isinstance(value, list | Mapping):
            changed[key] = inner
        else:
            changed.__dict__[key] = inner
    return changed


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """What a container or an object holds, by index, key or name."""
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, Tensor | type | torch.nn.Module) or callable(value):
        return []
    return list(getattr(value, "__dict__", {}).items())
