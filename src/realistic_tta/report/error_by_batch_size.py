"""Error against batch size, a line a method (the paper's Figure 1 c)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record

from .selection import lines, missing, one_group, sizes_of
from .style import batch_size_axis, in_style, legend_beside, look, new_panels


@in_style
def error_by_batch_size(records: Sequence[Record]) -> Figure:
    """Means over the seeds; with several seeds a band from the least to the largest error."""
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
    axes.set_ylabel("error, mean over corruptions (%)")
    axes.set_ylim(0, 100)
    legend_beside(figure)
    return figure
