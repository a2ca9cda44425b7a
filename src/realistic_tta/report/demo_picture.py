"""The picture of `rtta demo`: the corruptions, and the error of every method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record

from .style import STYLES, in_style, look

COMPARED = ("source", "tbn", "realistic")
Errors = Mapping[tuple[str, int], float]


@in_style
def demo_picture(
    records: Sequence[Record],
    errors: Errors,
    methods: Sequence[str],
    sizes: Sequence[int],
    photographs: Sequence[tuple[str, Any]],
) -> Figure:
    """The figure. photographs: corruption and (row, column, color)."""
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(2, 1, height_ratios=[1, 4.6])
    top, bottom = parts
    top.suptitle("One photograph under fifteen corruptions", x=0.01, ha="left")
    for axes, (name, image) in zip(top.subplots(1, len(photographs)), photographs, strict=True):
        axes.imshow(image, interpolation="bicubic")
        axes.set_title(name.replace("_", "\n", 1), fontsize=7, loc="center")
        axes.set_axis_off()
    left, right = bottom.subplots(1, 2, width_ratios=[1, 1.35])
    _by_batch_size(left, errors, methods, sizes)
    _by_corruption(right, records, sizes[-1])
    return figure


def _by_batch_size(axes: Any, errors: Errors, methods: Sequence[str], sizes: Sequence[int]) -> None:
    places = range(len(sizes))
    for method in methods:
        row = [errors.get((method, size), math.nan) for size in sizes]
        axes.plot(places, row, label=method, **look(method))
    axes.set_xticks(places, [str(size) for size in sizes])
    axes.set_xlabel("batch size")
    axes.set_ylabel("error, mean over corruptions (%)")
    axes.set_ylim(0, 100)
    axes.set_title("Error by batch size")
    axes.legend(loc="upper left")


def _by_corruption(axes: Any, records: Sequence[Record], size: int) -> None:
    """At one batch size; a line joins the source model and `realistic`."""
    found = {
        record.method: record.parts
        for record in records
        if record.parts and (record.method == "source" or record.batch_size == size)
    }
    columns = {m: [part.error for part in found[m]] for m in COMPARED if m in found}
    names = [part.corruption for part in next(iter(found.values()), ())]
    places = list(range(len(names)))[::-1]
    if "source" in columns and "realistic" in columns:
        color = STYLES["realistic"]["color"]
        axes.hlines(places, columns["source"], columns["realistic"], color=color, alpha=0.35, lw=4)
    for method, column in columns.items():
        style = {key: STYLES[method][key] for key in ("color", "marker")}
        axes.scatter(column, places, label=method, s=42, zorder=3, **style)
    axes.set_yticks(places, [name.replace("_", " ") for name in names])
    axes.set_xlim(0, 100)
    axes.set_xlabel("error (%)")
    axes.set_title(f"Error by corruption at batch size {size}")
    axes.legend(loc="upper right", bbox_to_anchor=(1, -0.1), ncols=3)
