"""Cost against error: who gives most for least."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record

from .selection import extremes, lines, missing, one_group
from .style import in_style, legend_beside, look, new_panels

TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 200)
FRONT: dict[str, Any] = {"color": "#BBBBBB", "linewidth": 4, "zorder": 1}
Point = tuple[float, float]  # cost, error


@in_style
def cost_against_error(records: Sequence[Record]) -> Figure:
    """A panel for the largest and the smallest batch size; the line joins what nothing beats."""
    group = one_group(records, "cost_against_error")
    by_size = _points(records)
    if not by_size:
        raise missing(
            "cost_against_error", "records with a cost (4 batches or more)", records, images=100
        )
    sizes = extremes({size: len(points) for size, points in by_size.items()})
    figure, panels = new_panels(1, len(sizes), (4.6, 3.9), group.title(), sharey=True)
    for axes, size in zip(panels, sizes, strict=True):
        points = by_size[size]
        costs, errors = zip(*pareto(list(points.values())), strict=True)
        axes.plot(costs, errors, label="none is better in both", **FRONT)
        for name, (cost, error) in points.items():
            style = look(name) | {"linestyle": "", "markersize": 8}
            axes.plot([cost], [error], label=name, **style)
        _cost_axis(axes, [cost for cost, _ in points.values()])
        axes.set_title(f"batch size {size}")
    panels[0].set_ylabel("error, mean over corruptions (%)")
    legend_beside(figure)
    return figure


def _points(records: Sequence[Record]) -> dict[int, dict[str, Point]]:
    """Cost and error by batch size and line; means over the seeds."""
    found: dict[int, dict[str, Point]] = {}
    for name, by_size in lines(records).items():
        for size, seeds in by_size.items():
            known = [(r.cost, r.error) for r in seeds if r.cost is not None and r.error is not None]
            if known:
                costs, errors = zip(*known, strict=True)
                found.setdefault(size, {})[name] = fmean(costs), fmean(errors)
    return found


def pareto(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both, from cheap to dear.

    >>> pareto([(1, 50), (2, 30), (3, 40), (4, 20)])
    [(1, 50), (2, 30), (4, 20)]
    """
    front: list[Point] = []
    for point in sorted(points):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _cost_axis(axes: Axes, costs: Sequence[float]) -> None:
    low, high = min(*costs, 1) * 0.9, max(*costs, 2) * 1.15
    axes.set_xscale("log")
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)
    axes.set_xlabel("cost (times the plain network's time)")
