"""Error over the course of the stream, a line a method (the appendix's real-time figure)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from realistic_tta.results import Record

from .selection import extremes, lines, missing, one_group, sizes_of
from .style import in_style, legend_beside, look, new_panels

# A single image says nothing: stretches of 50 or more, but one to three a corruption.
IN_A_BIN, BINS = 50, (15, 45)
Course = Sequence[tuple[int, float]]


@in_style
def error_over_stream(records: Sequence[Record]) -> Figure:
    """At the largest and the smallest batch size; of several seeds the first."""
    group = one_group(records, "error_over_stream")
    sizes = sizes_of(records)
    if not sizes:
        raise missing("error_over_stream", "a method without a fixed momentum", records)
    shown = extremes(sizes)
    figure, panels = new_panels(len(shown), 1, (11, 3), group.title(), sharex=True)
    for axes, size in zip(panels, shown, strict=True):
        few = {
            name: by_size[size][0] for name, by_size in lines(records).items() if size in by_size
        }
        for name, record in few.items():
            bins = binned(record.course, bins_for(record.course[-1][0]))
            style = {**look(name), "markersize": 4, "markevery": max(len(bins) // 15, 1)}
            axes.plot([seen for seen, _ in bins], [error for _, error in bins], label=name, **style)
        named = axes is panels[0] and not group.setting.startswith("mixed")
        axes.set_title(f"batch size {size}", pad=44 if named else 6)
        axes.set_ylabel("error in this stretch (%)")
        axes.set_ylim(0, 100)
        if not group.setting.startswith("mixed"):
            _mark_corruptions(axes, next(iter(few.values())), named=named)
    panels[-1].set_xlabel("images seen")
    longest = max(panels, key=lambda panel: len(panel.get_lines()))
    legend_beside(figure, longest)
    return figure


def bins_for(images: int) -> int:
    """How many stretches a stream is shown in.

    >>> bins_for(300), bins_for(1500), bins_for(150_000)
    (15, 30, 45)
    """
    low, high = BINS
    return min(max(images // IN_A_BIN, low), high)


def binned(course: Course, bins: int) -> list[tuple[float, float]]:
    """Middle and mean error of stretches of about equal length, weighted by images.

    course: images seen so far, error since the point before.

    >>> binned([(2, 0.0), (4, 50.0), (8, 25.0)], bins=2)
    [(2.0, 25.0), (6.0, 25.0)]
    """
    total, start, before, wrong = course[-1][0], 0, 0, 0.0
    found: list[tuple[float, float]] = []
    for seen, error in course:
        wrong += (seen - before) * error
        before = seen
        if seen * bins >= total * (len(found) + 1):
            found.append(((start + seen) / 2, wrong / (seen - start)))
            start, wrong = seen, 0.0
    return found


def _mark_corruptions(axes: Axes, record: Record, *, named: bool) -> None:
    """Stripes behind the lines: corruptions come one after another."""
    start = 0
    runs = groupby(record.parts, key=lambda part: part.corruption)
    for place, (corruption, parts) in enumerate(runs):
        end = start + sum(part.images for part in parts)
        if place % 2:
            axes.axvspan(start, end, color="#000000", alpha=0.05, linewidth=0)
        if named:
            axes.text(
                (start + end) / 2,
                1.01,
                corruption.replace("_", " "),
                transform=axes.get_xaxis_transform(),
                rotation=30,
                fontsize=7,
            )
        start = end
    axes.set_xlim(0, start)
