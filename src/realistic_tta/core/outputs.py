"""Tensors inside the arguments or outputs of a model: tuples, lists, mappings, objects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from realistic_tta.errors import ModelError

MAX_DEPTH = 5  # an object may contain itself


def logits_in(outputs: Any) -> Tensor | None:
    """The first floating-point tensor of two dimensions in a model's output, (image, class)."""
    if isinstance(outputs, Tensor):  # nearly always
        return outputs if outputs.ndim == 2 and outputs.is_floating_point() else None
    for tensor in tensors_in(outputs):
        if tensor.ndim == 2 and tensor.is_floating_point():
            return tensor
    return None


def find_logits(outputs: Any) -> Tensor:
    """The logits in a model's output, (image, class); raises a ModelError if there are none."""
    logits = logits_in(outputs)
    if logits is not None:
        return logits
    shapes = ", ".join(str(tuple(each.shape)) for each in tensors_in(outputs)) or "no tensor"
    raise ModelError(
        f"the model returned a {type(outputs).__name__} with {shapes}; expected logits of two "
        "dimensions (image, class). Wrap the model so that it returns them, or use a method "
        "that needs no logits, such as realistic or rectified_tema"
    )


def replace_logits(outputs: Any, logits: Tensor) -> Any:
    """The same output with other logits in place of those that `find_logits` finds."""
    old = find_logits(outputs)
    return map_tensors(lambda each: logits.to(each.dtype) if each is old else each, outputs)


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32 or better."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def tensors_in(value: Any, depth: int = MAX_DEPTH) -> Iterator[Tensor]:
    """All tensors in the value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif depth:
        for _, inner in _parts(value):
            yield from tensors_in(inner, depth - 1)


def map_tensors(function: Callable[[Tensor], Tensor], value: Any, depth: int = MAX_DEPTH) -> Any:
    """The same value with its tensors replaced by what the function returns for them.

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
    """The mean of several outputs of one structure; what is not floating-point is the last's.

    >>> zero, two = torch.tensor([0.0, 2.0], device="cpu")
    >>> mean_outputs([{"logits": zero}, {"logits": two}])
    {'logits': tensor(1.)}
    """
    totals: list[Tensor] = []
    outputs, count = None, 0
    for count, outputs in enumerate(many, start=1):  # noqa: B007 - both are used after the loop
        found = [widen(tensor) for tensor in tensors_in(outputs) if tensor.is_floating_point()]
        totals = list(map(torch.add, totals, found)) if totals else found
    means = (total / count for total in totals)
    return map_tensors(lambda t: next(means).to(t.dtype) if t.is_floating_point() else t, outputs)


def without_gradient(tensor: Tensor) -> Tensor:
    """The tensor as one that may take part in a backward pass, but needs no gradient itself."""
    if tensor.is_inference():
        return tensor.clone()
    return tensor.detach() if tensor.requires_grad else tensor


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """The contents of a container or an object, by index, key or name."""
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, type | torch.nn.Module) or callable(value):
        return []
    return list(getattr(value, "__dict__", {}).items())
