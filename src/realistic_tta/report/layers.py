"""Source weight and divergence of every layer over the stream, as rectified_tema sets them."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record
from realistic_tta.benchmark.trace_files import Figures, Trace

from .selection import Traces, missing, one_group
from .style import HEAT, in_style, new_panels

METHOD = "rectified_tema"  # the one whose source weights differ by layer
NAMED = 20  # layers, at most; a name beside every one of 53 would not be read


@in_style
def layers(records: Sequence[Record], traces: Traces) -> Figure:
    """Two rows, source weight and divergence; columns for the largest and smallest batch size."""
    group = one_group(records, "layers")
    found = {
        record.batch_size: trace
        for record in sorted(records, key=lambda each: -each.seed)  # the first seed wins
        if record.method == METHOD and not record.settings and (trace := traces(record.key))
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
        first.set_ylabel("layer, input on top")
    figure.colorbar(weights, ax=top, label="source weight (share)", pad=0.01)
    figure.colorbar(divergences, ax=bottom, label="divergence (nats)", pad=0.01)
    return figure


def _mesh(axes: Axes, trace: Trace, columns: Sequence[Figures], norm: Normalize) -> QuadMesh:
    """A column a point in time, a row a layer; grey where there is no figure."""
    edges = [0, *(point.images for point in trace.points)]
    rows = [
        [nan if value is None else value for value in layer] for layer in zip(*columns, strict=True)
    ]
    heat = mpl.colormaps[HEAT].with_extremes(bad="#CCCCCC")
    mesh = axes.pcolormesh(edges, range(len(rows) + 1), rows, cmap=heat, norm=norm, rasterized=True)
    every = -(-len(rows) // NAMED)
    places = range(0, len(rows), every)
    axes.set_yticks([place + 0.5 for place in places], [trace.layers[place] for place in places])
    axes.tick_params(axis="y", labelsize=7)
    axes.set_ylim(len(rows), 0)
    axes.grid(visible=False)
    return mesh
