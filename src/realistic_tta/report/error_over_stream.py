"""Error over the course of the stream, a line a method (the appendix's real-time figure)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record

from .selection import extremes, lines, missing, one_group, sizes_of
from .style import in_style, legend_beside, look, new_panels

IN_A_BIN = 50  # images at least, if that makes a bin a corruption: a single image says nothing
IN_A_CORRUPTION = 3  # bins at most
Course = Sequence[tuple[int, float]]


@in_style
def error_over_stream(records: Sequence[Record]) -> Figure:
    """At the largest and the smallest batch size; of several seeds the first."""
    group = one_group(records, "error_over_stream")
    sizes = sizes_of(records)
    if not sizes:
        raise missing("error_over_stream", "a method without a fixed momentum", records)
    shown = extremes(sizes)
    in_turn = not group.setting.startswith("mixed")  # one corruption after another
    figure, panels = new_panels(len(shown), 1, (11, 3), group.title(), sharex=True)
    for axes, size in zip(panels, shown, strict=True):
        few = {
            name: by_size[size][0] for name, by_size in lines(records).items() if size in by_size
        }
        for name, record in few.items():
            corruptions = len({part.corruption for part in record.parts})
            bins = binned(record.course, bins_for(record.course[-1][0], corruptions))
            style = {**look(name), "markersize": 4, "markevery": max(len(bins) // 15, 1)}
            axes.plot([seen for seen, _ in bins], [error for _, error in bins], label=name, **style)
        named = in_turn and axes is panels[0]
        axes.set_title(f"batch size {size}", pad=44 if named else 6)
        axes.set_ylabel("error in this stretch (%)")
        axes.set_ylim(0, 100)
        if in_turn:
            _mark_corruptions(axes, next(iter(few.values())), named=named)
    panels[-1].set_xlabel("images seen")
    legend_beside(figure)
    return figure


def bins_for(images: int, corruptions: int) -> int:
    """How many stretches a stream is shown in; as many for each corruption.

    >>> [bins_for(images, corruptions=15) for images in (300, 1500, 150_000)]
    [15, 30, 45]
    """
    return corruptions * min(max(images // (IN_A_BIN * corruptions), 1), IN_A_CORRUPTION)


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
