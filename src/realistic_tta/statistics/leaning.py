"""An estimate that leans on what is known longer, as far as chance explains the difference.

Several memories of one quantity lie ready: a long one is exact but old, a short one is new but
uncertain. The estimate starts at the source and goes to each memory in turn, the longest first, and
each time stays behind by the share of the gap that noise alone would make (James and Stein 1961,
positive part). Used by normalization/remembered_statistics.py.

All of it is arithmetic with a few numbers: the source is at 0, the memories are known by the steps
from one to the next, and distances by the products of these steps.
"""

from __future__ import annotations

from collections.abc import Sequence

Products = Sequence[Sequence[float]]


def lean(products: Products, explained: Sequence[float]) -> list[float]:
    """How much of each step is taken, from the source over each memory to the last.

        stay = min(1, explained / gap)         gap = |memory - estimate| ** 2
        estimate = stay * estimate + (1 - stay) * memory

    products: of the steps, (memory, memory); the first leads from the source to the longest
    memory. explained: the gap that is no sign of a change, of each memory. The estimate is the sum
    of the steps, each times what is returned for it.

    >>> lean([[4.0]], [1.0])
    [0.75]
    """
    rest: list[float] = []  # memory - estimate, as parts of the steps
    gap = 0.0
    for place, tolerated in enumerate(explained):
        row = products[place]
        gap += 2 * sum(part * row[step] for step, part in enumerate(rest)) + row[place]
        stay = min(1.0, tolerated / gap) if gap > 0 else 1.0
        rest = [stay * part for part in (*rest, 1.0)]
        gap *= stay * stay
    return [1 - part for part in rest]


def square(products: Products, parts: Sequence[float]) -> float:
    """The squared length of the sum of the steps, each times its part.

    >>> square([[1.0, 0.0], [0.0, 4.0]], [1.0, 0.5])
    2.0
    """
    places = range(len(parts))
    return sum(
        parts[one] * sum(products[one][other] * parts[other] for other in places) for one in places
    )


def source_weight(distance: float, least: float, tolerance: float) -> float:
    """What the source weighs at last: at least so much, and all where nothing has shifted.

        weight = max(least, min(1, tolerance / distance))

    distance: of the estimate from the source, squared. tolerance: the distance that is no shift.

    >>> [source_weight(distance, 0.5, 0.01) for distance in (1.0, 0.016, 0.0)]
    [0.5, 0.625, 1.0]
    """
    if distance <= tolerance:
        return 1.0
    return max(least, tolerance / distance)
