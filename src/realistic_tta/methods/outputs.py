"""Tensors inside whatever a network takes or returns: tuples, lists, mappings, objects.

A method that trains needs the logits among them, and hands them on without their gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from realistic_tta.errors import ModelError


def find_logits(outputs: Any) -> Tensor:
    """The logits (image, class) in a network's output.

    The output itself, if it is a tensor; else the first floating-point tensor of two dimensions.
    """
    found = list(tensors_in(outputs))
    for tensor in found:
        if tensor.ndim == 2 and tensor.is_floating_point():
            return tensor
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in found) or "no tensor"
    raise ModelError(
        f"the network returned a {type(outputs).__name__} with {shapes}; expected logits of two "
        "dimensions (image, class). Wrap the network so that it returns them, or use a method "
        "that needs no logits, such as rectified_tema"
    )


def widen(tensor: Tensor) -> Tensor:
    """The same in float32 or better."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


DEPTH = 5  # how deep to look: an object may hold itself


def tensors_in(value: Any, depth: int = DEPTH) -> Iterator[Tensor]:
    """All tensors in the value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif depth:
        for _, inner in _parts(value):
            yield from tensors_in(inner, depth - 1)


def map_tensors(function: Callable[[Tensor], Tensor], value: Any, depth: int = DEPTH) -> Any:
    """The same value with the tensors in it exchanged; what holds none that changes is kept.

    Nothing is changed in place: a container or object with a new tensor is itself a new one.
    """
    if isinstance(value, Tensor):
        return function(value)
    parts = _parts(value) if depth else []
    after = {key: map_tensors(function, inner, depth - 1) for key, inner in parts}
    if all(after[key] is inner for key, inner in parts):
        return value
    if isinstance(value, tuple):
        make = getattr(type(value), "_make", type(value))  # a named tuple takes them one by one
        return make(after.values())
    changed = copy.copy(value)
    for key, inner in after.items():
        if isinstance(value, list | Mapping):
            changed[key] = inner
        else:
            changed.__dict__[key] = inner
    return changed


def mean_outputs(many: Iterable[Any]) -> Any:
    """The mean of several outputs of one form, tensor by tensor; what is no number is the last's.

    >>> zero, two = torch.tensor([0.0, 2.0], device="cpu")
    >>> mean_outputs([{"logits": zero}, {"logits": two}])
    {'logits': tensor(1.)}
    """
    totals: list[Tensor] = []
    outputs, count = None, 0
    for count, outputs in enumerate(many, start=1):  # noqa: B007 - both are used after the last
        found = [widen(tensor) for tensor in tensors_in(outputs) if tensor.is_floating_point()]
        totals = list(map(torch.add, totals, found)) if totals else found
    means = (total / count for total in totals)
    return map_tensors(lambda t: next(means).to(t.dtype) if t.is_floating_point() else t, outputs)


def without_gradient(tensor: Tensor) -> Tensor:
    """The tensor as one that may take part in a backward pass, but needs no gradient itself."""
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        return tensor.clone()
    return tensor.detach() if tensor.requires_grad else tensor


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """What a container or an object holds, by index, key or name."""
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, type | torch.nn.Module) or callable(value):
        return []
    return list(getattr(value, "__dict__", {}).items())
