"""Error against batch size for fixed momenta, over what Eq. 5 chooses (momentum analysis)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record
from realistic_tta.functional.momentum import choose_momentum

from .data_facts import FACTS, DataFacts
from .selection import by_group, missing
from .style import batch_size_axis, in_style, legend_beside, new_panels

AUTO = "auto"
LOOKS: dict[float | str, dict[str, Any]] = {
    1.0: {"color": "#D55E00", "marker": "X", "linestyle": "-"},
    0.1: {"color": "#0072B2", "marker": "o", "linestyle": "--"},
    0.01: {"color": "#009E73", "marker": "D", "linestyle": "-."},
    0.001: {"color": "#CC79A7", "marker": "v", "linestyle": ":"},
    AUTO: {"color": "#000000", "marker": "", "linestyle": ":", "linewidth": 2.5},
}
OTHER = {"color": "#777777", "marker": "s", "linestyle": "-"}
COLUMNS = 3


@in_style
def momentum_analysis(records: Sequence[Record]) -> Figure:
    """A panel for each group of records in which tema ran with two fixed momenta or more."""
    panels = {group: _errors(few) for group, few in by_group(records).items()}
    shown = {group: errors for group, errors in panels.items() if _enough(errors)}
    if not shown:
        tema = [record for record in records if record.method == "tema"]
        raise missing(
            "momentum_analysis",
            "tema with two fixed momenta or more at two batch sizes or more",
            tema or records,
            methods="tema",
            momentum="auto,1,0.1,0.01",
        )
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    title = "tema by momentum; shaded: what Eq. 5 chooses"
    figure, axes = new_panels(rows, columns, (5.2 if columns == 1 else 4.2, 3.4), title)
    for panel, (group, errors) in zip(axes, shown.items(), strict=False):
        _draw(panel, errors)
        if group.data in FACTS:
            _shade(panel, FACTS[group.data])
        panel.set_title(fill(group.title(), 44, break_on_hyphens=False), fontsize=8)
    for unused in axes[len(shown) :]:
        unused.remove()
    legend_beside(figure)
    return figure


Errors = dict[float | str, dict[int, float]]  # by momentum and batch size


def _errors(records: Sequence[Record]) -> Errors:
    """Of tema with no other setting than momentum; means over the seeds."""
    found: dict[float | str, dict[int, list[float]]] = {}
    for record in records:
        if record.method == "tema" and set(record.settings) <= {"momentum"}:
            by_size = found.setdefault(record.settings.get("momentum", AUTO), {})
            by_size.setdefault(record.batch_size, []).append(record.error or 0.0)
    order = sorted(found, key=lambda momentum: -1.0 if momentum == AUTO else -float(momentum))
    order.sort(key=lambda momentum: momentum == AUTO)
    return {
        momentum: {size: fmean(few) for size, few in sorted(found[momentum].items())}
        for momentum in order
    }


def _enough(errors: Errors) -> bool:
    fixed = [by_size for momentum, by_size in errors.items() if momentum != AUTO]
    return len(fixed) > 1 and len(set().union(*fixed)) > 1


def _draw(axes: Axes, errors: Errors) -> None:
    for momentum, by_size in errors.items():
        label = "m by Eq. 5" if momentum == AUTO else f"m = {momentum:g}"
        axes.plot(list(by_size), list(by_size.values()), label=label, **LOOKS.get(momentum, OTHER))
    batch_size_axis(axes, sorted(set().union(*errors.values())))
    axes.set_ylabel("error, mean over corruptions (%)")
    axes.margins(y=0.15)


def regions(facts: DataFacts, sizes: range) -> list[tuple[float, int, int]]:
    """Eq. 5's choice, and the first and last batch size that it holds for.

    >>> regions(DataFacts("", 10, 128), range(1, 201))
    [(0.01, 1, 2), (0.1, 3, 44), (1.0, 45, 200)]
    """
    chosen = [(choose_momentum(facts.classes, facts.source_batch_size, n), n) for n in sizes]
    runs = [(m, [n for _, n in run]) for m, run in groupby(chosen, key=lambda pair: pair[0])]
    return [(momentum, few[0], few[-1]) for momentum, few in runs]


def _shade(axes: Axes, facts: DataFacts) -> None:
    """Up to the sizes shown; a choice changes half-way, on the log axis, between two sizes."""
    low, high = axes.get_xlim()
    sizes = [int(tick) for tick in axes.get_xticks()]
    for momentum, first, last in regions(facts, range(min(sizes), max(sizes) + 1)):
        left = low if first == min(sizes) else (first * (first - 1)) ** 0.5
        right = high if last == max(sizes) else (last * (last + 1)) ** 0.5
        axes.axvspan(left, right, color=LOOKS[momentum]["color"], alpha=0.12, linewidth=0)
        axes.axvline(right, color="#999999", linewidth=0.6)
        axes.text(
            (left * right) ** 0.5,
            0.98,
            f"{momentum:g}",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=8,
        )
    axes.set_xlim(low, high)
