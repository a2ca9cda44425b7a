"""Figures of one group of records: a dataset, model and scenario. catalog.py lists them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import isnan, nan
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record
from realistic_tta.benchmark.traces import Trace, Values

from .selection import Traces, extremes, lines, missing, one_group, sizes_of
from .style import HEAT, batch_size_axis, in_style, legend_beside, look, new_panels

MEAN_ERROR = "error, mean over corruptions (%)"


@in_style
def error_by_batch_size(records: Sequence[Record]) -> Figure:
    """One line per method (the paper's Figure 1 c); a band spans the errors of several seeds."""
    group, sizes = one_group(records, "error_by_batch_size"), sizes_of(records)
    if len(sizes) < 2:
        raise missing(
            "error_by_batch_size", "two batch sizes", records, batch_sizes="200,64,16,4,2,1"
        )
    figure, (axes,) = new_panels(1, 1, (7.2, 4.2), group.title())
    for name, by_size in lines(records).items():
        errors = [[each.error or 0.0 for each in seeds] for seeds in by_size.values()]
        axes.plot(list(by_size), [fmean(few) for few in errors], label=name, **look(name))
        if max(map(len, errors)) > 1:
            low, high = [min(few) for few in errors], [max(few) for few in errors]
            axes.fill_between(list(by_size), low, high, color=look(name)["color"], alpha=0.15)
    batch_size_axis(axes, list(sizes))
    axes.set_ylabel(MEAN_ERROR)
    axes.set_ylim(0, 100)
    legend_beside(figure)
    return figure


@in_style
def error_by_corruption(records: Sequence[Record]) -> Figure:
    """A heat map of methods and corruptions, at the largest and the smallest batch size."""
    group, sizes = one_group(records, "error_by_corruption"), sizes_of(records)
    if not sizes:
        raise missing("error_by_corruption", "a method without a fixed momentum", records)
    shown, rows = extremes(sizes), lines(records)
    names = list(dict.fromkeys(part.corruption for each in records for part in each.parts))
    height = 0.9 + 0.26 * len(rows)
    figure, panels = new_panels(len(shown), 1, (3 + 0.48 * len(names), height), group.title())
    for axes, size in zip(panels, shown, strict=True):
        _heat(axes, [errors_of(by_size.get(size, []), names) for by_size in rows.values()])
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_title(f"batch size {size}")
        axes.tick_params(labelbottom=axes is panels[-1])
    ticks = [name.replace("_", " ") for name in names]
    for axes in panels:
        axes.set_xticks(range(len(names)), ticks, rotation=35, ha="right")
    figure.colorbar(panels[0].images[0], ax=panels, label="error (%)", aspect=30, pad=0.01)
    return figure


def errors_of(records: Sequence[Record], corruptions: Sequence[str]) -> list[float]:
    """The mean error per corruption in percent; NaN where there is none."""
    parts = [part for record in records for part in record.parts]
    found = [[part.error for part in parts if part.corruption == name] for name in corruptions]
    return [fmean(few) if few else nan for few in found]


def _heat(axes: Axes, rows: Sequence[Sequence[float]]) -> None:
    axes.imshow(rows, cmap=HEAT, vmin=0, vmax=100, aspect="auto")
    axes.grid(visible=False)
    for place, row in enumerate(rows):
        for column, error in enumerate(row):
            if not isnan(error):
                how: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
                color = "black" if error > 55 else "white"
                axes.text(column, place, f"{error:.0f}", color=color, **how)


BIN_IMAGES = 50  # in a bin, at least, if a corruption has that many
BINS = 3  # per corruption, at most
ErrorCurve = Sequence[tuple[int, float]]


@in_style
def error_over_stream(records: Sequence[Record]) -> Figure:
    """The error curve of every method, at the largest and the smallest batch size; first seed."""
    group, sizes = one_group(records, "error_over_stream"), sizes_of(records)
    if not sizes:
        raise missing("error_over_stream", "a method without a fixed momentum", records)
    shown = extremes(sizes)
    in_turn = not group.scenario.startswith("mixed")  # one corruption after another
    figure, panels = new_panels(len(shown), 1, (11, 3), group.title(), sharex=True)
    for axes, size in zip(panels, shown, strict=True):
        few = {name: found[size][0] for name, found in lines(records).items() if size in found}
        for name, record in few.items():
            corruptions = len({part.corruption for part in record.parts})
            curve = record.error_curve
            bins = binned(curve, bins_for(curve[-1][0], corruptions))
            style = {**look(name), "markersize": 4, "markevery": max(len(bins) // 15, 1)}
            axes.plot([seen for seen, _ in bins], [error for _, error in bins], label=name, **style)
        named = in_turn and axes is panels[0]
        axes.set_title(f"batch size {size}", pad=44 if named else 6)
        axes.set_ylabel("error (%)")
        axes.set_ylim(0, 100)
        if in_turn:
            _mark_corruptions(axes, next(iter(few.values())), named=named)
    panels[-1].set_xlabel("images seen")
    legend_beside(figure)
    return figure


def bins_for(images: int, corruptions: int) -> int:
    """The number of bins for a stream, the same for each corruption.

    >>> [bins_for(images, corruptions=15) for images in (300, 1500, 150_000)]
    [15, 30, 45]
    """
    return corruptions * min(max(images // (BIN_IMAGES * corruptions), 1), BINS)


def binned(curve: ErrorCurve, bins: int) -> list[tuple[float, float]]:
    """Center and mean error of bins of about equal length, weighted by images.

    >>> binned([(2, 0.0), (4, 50.0), (8, 25.0)], bins=2)
    [(2.0, 25.0), (6.0, 25.0)]
    """
    total, start, before, wrong = curve[-1][0], 0, 0, 0.0
    found: list[tuple[float, float]] = []
    for seen, error in curve:
        wrong += (seen - before) * error
        before = seen
        if seen * bins >= total * (len(found) + 1):
            found.append(((start + seen) / 2, wrong / (seen - start)))
            start, wrong = seen, 0.0
    return found


def _mark_corruptions(axes: Axes, record: Record, *, named: bool) -> None:
    """Draws a stripe for every second corruption."""
    start = 0
    runs = groupby(record.parts, key=lambda part: part.corruption)
    for place, (corruption, parts) in enumerate(runs):
        end = start + sum(part.images for part in parts)
        if place % 2:
            axes.axvspan(start, end, color="#000000", alpha=0.05, linewidth=0)
        if named:
            how: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "rotation": 30}
            axes.text((start + end) / 2, 1.01, corruption.replace("_", " "), fontsize=7, **how)
        start = end
    axes.set_xlim(0, start)


TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 200)
FRONT: dict[str, Any] = {"color": "#BBBBBB", "linewidth": 4, "zorder": 1}
CostAndError = tuple[float, float]


@in_style
def cost_against_error(records: Sequence[Record]) -> Figure:
    """At the largest and the smallest batch size, with the Pareto front."""
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
        axes.plot(costs, errors, label="Pareto front", **FRONT)
        for name, (cost, error) in points.items():
            style = look(name) | {"linestyle": "", "markersize": 8}
            axes.plot([cost], [error], label=name, **style)
        _cost_axis(axes, [cost for cost, _ in points.values()])
        axes.set_title(f"batch size {size}")
    panels[0].set_ylabel(MEAN_ERROR)
    legend_beside(figure)
    return figure


def _points(records: Sequence[Record]) -> dict[int, dict[str, CostAndError]]:
    """Cost and error by batch size and line; means over the seeds."""
    found: dict[int, dict[str, CostAndError]] = {}
    for name, by_size in lines(records).items():
        for size, seeds in by_size.items():
            known = [(r.cost, r.error) for r in seeds if r.cost is not None and r.error is not None]
            if known:
                costs, errors = zip(*known, strict=True)
                found.setdefault(size, {})[name] = fmean(costs), fmean(errors)
    return found


def pareto(points: Sequence[CostAndError]) -> list[CostAndError]:
    """The points that no other beats in both cost and error, by ascending cost.

    >>> pareto([(1, 50), (2, 30), (3, 40), (4, 20)])
    [(1, 50), (2, 30), (4, 20)]
    """
    front: list[CostAndError] = []
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
    axes.set_xlabel("cost (multiples of the source model's time)")


METHOD = "rectified_tema"  # its source weights differ per layer
NAMED = 20  # layer names on the axis, at most


@in_style
def layers(records: Sequence[Record], traces: Traces) -> Figure:
    """Source weight and divergence per layer, at the largest and the smallest batch size."""
    group = one_group(records, "layers")
    found = {
        record.batch_size: trace
        for record in sorted(records, key=lambda each: -each.seed)  # the first seed wins
        if record.method == METHOD and not record.hyperparameters and (trace := traces(record.key))
    }
    if not found:
        raise missing("layers", f"a trace of {METHOD}", records, methods=METHOD, traces="")
    sizes = sorted({max(found), min(found)}, reverse=True)
    shown = [found[size] for size in sizes]
    height = 1.5 + 0.13 * min(len(shown[0].layers), NAMED)
    figure, panels = new_panels(
        2, len(sizes), (9 / len(sizes) + 1.5, height), f"{group.title()}: {METHOD}", sharey=True
    )
    top, bottom = panels[: len(sizes)], panels[len(sizes) :]
    gaps = [gap for trace in shown for point in trace.points for gap in point.divergence if gap]
    by_weight, by_gap = Normalize(0, 0.5), LogNorm(min(gaps, default=1), max(gaps, default=2))
    for axes, below, size, trace in zip(top, bottom, sizes, shown, strict=True):
        weights = _mesh(axes, trace, [point.source_weight for point in trace.points], by_weight)
        divergences = _mesh(below, trace, [point.divergence for point in trace.points], by_gap)
        axes.set_title(f"batch size {size}")
        below.set_xlabel("images seen")
    for first in (top[0], bottom[0]):
        first.set_ylabel("layer (input on top)")
    figure.colorbar(weights, ax=top, label="source weight (ratio)", pad=0.01)
    figure.colorbar(divergences, ax=bottom, label="divergence (nats)", pad=0.01)
    return figure


def _mesh(axes: Axes, trace: Trace, columns: Sequence[Values], norm: Normalize) -> QuadMesh:
    """One column per point in time, one row per layer; gray where there is no value."""
    edges = [0, *(point.images for point in trace.points)]
    rows = [[nan if v is None else v for v in layer] for layer in zip(*columns, strict=True)]
    heat = mpl.colormaps[HEAT].with_extremes(bad="#CCCCCC")
    mesh = axes.pcolormesh(edges, range(len(rows) + 1), rows, cmap=heat, norm=norm, rasterized=True)
    places = range(0, len(rows), -(-len(rows) // NAMED))
    axes.set_yticks([place + 0.5 for place in places], [trace.layers[place] for place in places])
    axes.tick_params(axis="y", labelsize=7)
    axes.set_ylim(len(rows), 0)
    axes.grid(visible=False)
    return mesh
