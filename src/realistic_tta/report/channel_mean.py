"""The mean that a channel of the last BatchNorm layer is normalised with (paper, Figure 1 a, b)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record
from realistic_tta.benchmark.trace_files import Trace

from .selection import Traces, lines, missing, one_group
from .style import STYLES, in_style, legend_beside, new_panels

BATCH_STATISTICS = ("tent", "tbn")  # the paper shows tent's; tbn's come from the same formula


@in_style
def channel_mean(records: Sequence[Record], traces: Traces) -> Figure:
    """At the largest and the smallest batch size: batch statistics, and TEMA."""
    group = one_group(records, "channel_mean")
    found = _traced(records, traces)
    batch = next((method for method in BATCH_STATISTICS if found.get(method)), BATCH_STATISTICS[0])
    shared = set(found.get(batch, {})) & set(found.get("tema", {}))
    if len(shared) < 2:
        raise missing(
            "channel_mean",
            "traces of tema and of tent or tbn at two batch sizes",
            records,
            methods="tent,tema",
            batch_sizes="200,2",
            traces="",
        )
    sizes, any_trace = [max(shared), min(shared)], found["tema"][max(shared)]
    title = f"{group.title()}\nmean of channel {any_trace.channel} of layer {any_trace.layer}"
    figure, panels = new_panels(len(sizes), 1, (9, 2.3), title, sharex=True, sharey=True)
    for axes, size in zip(panels, sizes, strict=True):
        for method in (batch, "tema"):
            points = found[method][size].points
            style = {**STYLES[method], "marker": "", "linewidth": 2.2 if method == "tema" else 1}
            label = "TEMA" if method == "tema" else f"batch statistics ({method})"
            seen, means = [point.images for point in points], [point.mean for point in points]
            axes.plot(seen, means, label=label, **style)  # type: ignore[arg-type]
        axes.axhline(any_trace.source_mean or 0, color="#555555", linestyle="--", label="training")
        axes.set_title(f"batch size {size}")
        axes.set_ylabel("mean (activation)")
    panels[-1].set_xlabel("images seen")
    legend_beside(figure)
    return figure


def _traced(records: Sequence[Record], traces: Traces) -> dict[str, dict[int, Trace]]:
    """By method and batch size, the first seed that has a trace with a channel."""
    found: dict[str, dict[int, Trace]] = {}
    for name, by_size in lines(records).items():
        for size, seeds in by_size.items():
            known = [trace for each in seeds if (trace := traces(each.key)) is not None]
            if known and known[0].channel is not None:
                found.setdefault(name, {})[size] = known[0]
    return found
