"""An estimate that leans on what is known longer, as far as chance explains the difference.

Several memories of one quantity lie ready: a long one is exact but old, a short one is new but
uncertain. The estimate starts at the source and goes to each memory in turn, the longest first, and
each time stays behind by the share of the gap that noise alone would make (James and Stein 1961,
positive part). Used by normalization/remembered_statistics.py.

All of it is arithmetic with a few numbers: the source is at 0, the memories are known by the steps
from one to the next, and distances by the products of these steps. The numbers are Python's where
the tensors are the host's, which is many times faster; elsewhere they stay tensors, so that nobody
waits for a device.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from .arrays import Array, is_at_hand

Number = float | Tensor
Products = Sequence[Sequence[Number]]


def numbers(values: Array) -> list[Number]:
    """The numbers of a vector: Python's, or tensors of no dimension."""
    return values.tolist() if is_at_hand(values) else list(values.unbind())


def number(value: Array) -> Number:
    """The number of a tensor of no dimension: Python's, or itself."""
    return value.item() if is_at_hand(value) else value


def table(values: Array) -> list[list[Number]]:
    """The same of a matrix, row by row."""
    if is_at_hand(values):
        rows: list[list[Number]] = values.tolist()
        return rows
    return [list(row.unbind()) for row in values.unbind()]


def together(values: Sequence[Number], like: Tensor) -> Tensor:
    """The vector of such numbers."""
    if is_at_hand(like):
        if like.dtype is torch.float32:  # by way of a buffer, which is three times as fast
            return torch.frombuffer(array("f", values), dtype=torch.float32)
        return like.new_tensor(values)
    return torch.stack(
        [torch.as_tensor(each, dtype=like.dtype, device=like.device) for each in values]
    )


def share(part: Number, whole: Number) -> Number:
    """What `part` is of `whole`, but at most 1; 1 of nothing.

    >>> share(1.0, 4.0), share(4.0, 1.0), share(0.0, 0.0)
    (0.25, 1.0, 1.0)
    """
    if isinstance(whole, Tensor):
        return (part / whole.clamp_min(_LEAST)).clamp_max(1)
    if not whole > 0:
        return whole if whole != whole else 1.0  # noqa: PLR0124 - NaN stays NaN
    return min(1.0, part / whole)


_LEAST = 1e-30


def log(value: Number) -> Number:
    """The natural logarithm; minus infinity of nothing.

    >>> log(1.0), log(0.0)
    (0.0, -inf)
    """
    if isinstance(value, Tensor):
        return value.log()
    return math.log(value) if value > 0 else -math.inf


def at_least(value: Number, least: float) -> Number:
    """The larger of the two.

    >>> at_least(1.0, 2.0)
    2.0
    """
    return value.clamp_min(least) if isinstance(value, Tensor) else max(least, value)


def at_most(value: Number, most: Number) -> Number:
    """The smaller of the two.

    >>> at_most(1.0, 2.0)
    1.0
    """
    return value.clamp_max(most) if isinstance(value, Tensor) else min(value, most)


def lean(products: Products, explained: Sequence[Number]) -> list[Number]:
    """How much of each step is taken, from the source over each memory to the last.

        stay = min(1, explained / gap)         gap = |memory - estimate| ** 2
        estimate = stay * estimate + (1 - stay) * memory

    products: of the steps, (memory, memory); the first leads from the source to the longest
    memory. explained: the gap that is no sign of a change, of each memory. The estimate is the sum
    of the steps, each times what is returned for it.

    >>> lean([[4.0]], [1.0])
    [0.75]
    """
    rest: list[Number] = []  # memory - estimate, as parts of the steps
    gap: Number = 0.0
    for row, tolerated in zip(products, explained, strict=True):
        gap = gap + 2 * _across(row, rest) + row[len(rest)]
        stay = share(tolerated, gap)
        rest = [stay * part for part in rest]
        rest.append(stay)
        gap = gap * stay * stay
    return [1 - part for part in rest]


def square(products: Products, parts: Sequence[Number]) -> Number:
    """The squared length of the sum of the steps, each times its part.

    >>> square([[1.0, 0.0], [0.0, 4.0]], [1.0, 0.5])
    2.0
    """
    length: Number = 0.0
    for place, (row, part) in enumerate(zip(products, parts, strict=True)):
        length = length + part * (2 * _across(row, parts[:place]) + part * row[place])
    return length


def _across(row: Sequence[Number], before: Sequence[Number]) -> Number:
    """The product of a step with the sum of the steps before it, each times its part.

    row: the products of the step with these, with itself, and with those after it.
    """
    across: Number = 0.0
    for part, product in zip(before, row):  # noqa: B905 - a row goes on after the step
        across = across + part * product
    return across


def source_weight(distance: Number, least: float, tolerance: float) -> Number:
    """What the source weighs at last: at least so much, and all where nothing has shifted.

        weight = max(least, min(1, tolerance / distance))

    distance: of the estimate from the source, squared. tolerance: the distance that is no shift.

    >>> [source_weight(distance, 0.5, 0.01) for distance in (1.0, 0.016, 0.0)]
    [0.5, 0.625, 1.0]
    """
    return at_least(share(tolerance, distance), least)
