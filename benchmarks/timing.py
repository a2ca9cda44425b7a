"""Time as a ratio to another call's, taken in turns in one run: what a noisy machine can tell.

Seconds are the process's own, so that another one beside costs little of the truth. A figure is the
median of the ratios; its spread, what that median is uncertain by (0.93 times the distance of the
quartiles by the root of their number), in parts of it. Repeated until that is under 3 percent.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

ENOUGH = 0.03


class Ratio(NamedTuple):
    """A call's time over the other's."""

    ratio: float
    spread: float  # in parts of the ratio
    turns: int

    def __str__(self) -> str:
        mark = "" if self.spread < ENOUGH else "?"
        return f"{self.ratio:.2f}{mark}"


def compare(
    base: Callable[[], object],
    calls: Mapping[str, Callable[[], object]],
    most_seconds: float,
    fewest: int = 5,
) -> dict[str, Ratio]:
    """Each call beside the base, in turns, until the spread is small or the time is up."""
    for call in (base, *calls.values()):
        call(), call()
    repeats = max(1, int(0.02 / seconds(base, 1)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + most_seconds
    while True:
        for name, call in calls.items():
            before = seconds(base, repeats)
            took = seconds(call, repeats)
            found[name].append(2 * took / (before + seconds(base, repeats)))
        ratios = {name: _summary(each) for name, each in found.items()}
        done = all(each.turns >= fewest and each.spread < ENOUGH for each in ratios.values())
        late = time.perf_counter() > end and all(each.turns > 2 for each in ratios.values())
        if done or late:
            return ratios


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Of this process, for one of so many calls."""
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def _summary(ratios: list[float]) -> Ratio:
    if len(ratios) < 2:
        return Ratio(ratios[0], 1.0, 1)
    middle = statistics.median(ratios)
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(middle, 0.93 * (high - low) / len(ratios) ** 0.5 / middle, len(ratios))
