"""Error by method and corruption, as a heat map with the numbers in it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record

from .selection import extremes, lines, missing, one_group, sizes_of
from .style import HEAT, in_style, new_panels


@in_style
def error_by_corruption(records: Sequence[Record]) -> Figure:
    """At the largest and the smallest batch size; means over seeds and severities."""
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
    """By corruption, in percent; NaN where there is none."""
    parts = [part for record in records for part in record.parts]
    found = [[part.error for part in parts if part.corruption == name] for name in corruptions]
    return [fmean(few) if few else nan for few in found]


def _heat(axes: Axes, rows: Sequence[Sequence[float]]) -> None:
    axes.imshow(rows, cmap=HEAT, vmin=0, vmax=100, aspect="auto")
    axes.grid(visible=False)
    for place, row in enumerate(rows):
        for column, error in enumerate(row):
            if not isnan(error):
                color = "black" if error > 55 else "white"  # on light, on dark
                axes.text(
                    column, place, f"{error:.0f}", ha="center", va="center", color=color, fontsize=8
                )
