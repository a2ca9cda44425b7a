"""A few numbers at a time, worked out where that is fastest.

A layer has some hundred moments, and an operation of torch takes longer to begin than to go over
them. NumPy begins several times sooner, and torch hands it the host's tensors without a copy. On a
device, and in a graph of torch.compile, they stay tensors.

An `Array` is either. What takes one keeps to the operators and methods that both have, and to the
functions that both name alike (`space`); for types it is a Tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

Array = Tensor  # or numpy.ndarray


def is_at_hand(values: Array) -> bool:
    """Whether values can be looked at without waiting for a device; not so in a graph."""
    if not isinstance(values, Tensor):
        return True
    return values.is_cpu and not torch.compiler.is_compiling()


def at_hand(values: Tensor) -> Array:
    """The same memory, as NumPy's where it is the host's.

    >>> type(at_hand(torch.zeros(1, device="cpu"))).__name__
    'ndarray'
    """
    if not is_at_hand(values):
        return values
    array: Any = values.numpy()
    return array  # type: ignore[no-any-return]


def as_tensor(values: Array) -> Tensor:
    """The same memory, as torch's.

    >>> as_tensor(at_hand(torch.zeros(1, device="cpu")))
    tensor([0.])
    """
    if isinstance(values, Tensor):
        return values
    array = space(values).asarray(values)  # a sum may be a number of NumPy's
    return torch.from_numpy(array)  # not as_tensor, which goes to the default device


def alike(values: Tensor, array: Array) -> Array:
    """The same memory, as NumPy's where the array is."""
    return values if isinstance(array, Tensor) else at_hand(values)


def space(values: Array) -> Any:
    """Where the functions of such an array are: torch or numpy."""
    if isinstance(values, Tensor):
        return torch
    import numpy as np  # noqa: PLC0415 - torch alone is enough to import this package

    return np


def join(rows: Sequence[Array], axis: int) -> Array:
    """Arrays one after the other along an axis."""
    joined: Array = space(rows[0]).concatenate(rows, axis)
    return joined


def positive_part(values: Array) -> Array:
    """0 in place of what is negative; NaN stays NaN.

    >>> positive_part(torch.tensor([-1.0, 2.0], device="cpu")).abs().tolist()
    [0.0, 2.0]
    """
    return values * (values > 0)


def quiet() -> AbstractContextManager[Any]:
    """NumPy says nothing of Inf and NaN, as torch does; who looks for them finds them."""
    if torch.compiler.is_compiling():
        return nullcontext()
    import numpy as np  # noqa: PLC0415

    return np.errstate(all="ignore")
