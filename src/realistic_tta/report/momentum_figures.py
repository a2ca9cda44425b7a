"""Figures about the momentum of TEMA: class diversity, and error by momentum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from textwrap import fill
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record
from realistic_tta.functional.class_diversity import class_diversity
from realistic_tta.functional.momentum import choose_momentum, expanded_scope

from .selection import by_group, missing
from .style import STYLES, batch_size_axis, in_style, legend_beside, new_panels

SIZES = (1, 2, 4, 16, 64, 200)  # the paper's
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


class Dataset(NamedTuple):
    """The inputs of Eq. 5: number of classes, and batch size of the source training."""

    title: str
    classes: int
    source_batch_size: int


PAPER = {
    "cifar10-c": Dataset("CIFAR-10-C", 10, 128),
    "cifar100-c": Dataset("CIFAR-100-C", 100, 128),
    "imagenet-c": Dataset("ImageNet-C", 1000, 256),
}
DATASETS = PAPER | {"cifar10-c-sample": Dataset("CIFAR-10-C, 2,000 images", 10, 128)}


@in_style
def draw_class_diversity() -> Figure:
    """Expected classes by batch size, of one batch and of TEMA (the paper's Figure 1 d)."""
    title = "Number of classes in the statistics (Proposition 1, Eq. 5)"
    figure, panels = new_panels(1, len(PAPER), (3.6, 3.2), title)
    for axes, facts in zip(panels, PAPER.values(), strict=True):
        source = class_diversity(facts.classes, facts.source_batch_size)
        averaged = [averaged_diversity(facts, size) for size in SIZES]
        current = [class_diversity(facts.classes, size) for size in SIZES]
        style = {name: STYLES["source"][name] for name in ("color", "linestyle")}
        axes.axhline(source, label="training batch", **style)
        axes.plot(SIZES, averaged, label="TEMA, momentum by Eq. 5", **STYLES["tema"])
        axes.plot(SIZES, current, label="current batch", **STYLES["tbn"])
        batch_size_axis(axes, SIZES)
        axes.set_ylim(bottom=0)
        axes.set_title(f"{facts.title}: {facts.classes} classes")
    panels[0].set_ylabel("expected classes (count)")
    legend_beside(figure)
    return figure


def averaged_diversity(facts: Dataset, batch_size: int) -> float:
    """Expected classes in TEMA's average, with the momentum of Eq. 5.

    >>> round(averaged_diversity(Dataset("", 10, 128), 4), 2)
    9.03
    """
    momentum = choose_momentum(facts.classes, facts.source_batch_size, batch_size)
    return class_diversity(facts.classes, expanded_scope(momentum, batch_size))


@in_style
def momentum_analysis(records: Sequence[Record]) -> Figure:
    """Error by batch size for fixed momentums, over the choice of Eq. 5; one panel per group."""
    panels = {group: _errors(few) for group, few in by_group(records).items()}
    shown = {group: errors for group, errors in panels.items() if _enough(errors)}
    if not shown:
        tema = [record for record in records if record.method == "tema"]
        raise missing(
            "momentum_analysis",
            "tema with two fixed momentums or more at two batch sizes or more",
            tema or records,
            methods="tema",
            momentums="auto,1,0.1,0.01",
        )
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    title = "tema by momentum; shaded: the choice of Eq. 5"
    figure, axes = new_panels(rows, columns, (5.2 if columns == 1 else 4.2, 3.4), title)
    for panel, (group, errors) in zip(axes, shown.items(), strict=False):
        _draw(panel, errors)
        if group.dataset in DATASETS:
            _shade(panel, DATASETS[group.dataset])
        panel.set_title(fill(group.title(), 44, break_on_hyphens=False), fontsize=8)
    for unused in axes[len(shown) :]:
        unused.remove()
    legend_beside(figure)
    return figure


Errors = dict[float | str, dict[int, float]]  # by momentum and batch size


def _errors(records: Sequence[Record]) -> Errors:
    """Of tema with no other hyperparameter than momentum; means over the seeds."""
    found: dict[float | str, dict[int, list[float]]] = {}
    for record in records:
        if record.method == "tema" and set(record.hyperparameters) <= {"momentum"}:
            by_size = found.setdefault(record.hyperparameters.get("momentum", AUTO), {})
            by_size.setdefault(record.batch_size, []).append(record.error or 0.0)
    order = sorted(
        found, key=lambda momentum: (momentum == AUTO, -float(momentum != AUTO and momentum))
    )
    return {m: {size: fmean(few) for size, few in sorted(found[m].items())} for m in order}


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


def regions(facts: Dataset, sizes: range) -> list[tuple[float, int, int]]:
    """The choice of Eq. 5, with the first and last batch size it holds for.

    >>> regions(Dataset("", 10, 128), range(1, 201))
    [(0.01, 1, 2), (0.1, 3, 44), (1.0, 45, 200)]
    """
    chosen = [(choose_momentum(facts.classes, facts.source_batch_size, n), n) for n in sizes]
    runs = [(m, [n for _, n in run]) for m, run in groupby(chosen, key=lambda pair: pair[0])]
    return [(momentum, few[0], few[-1]) for momentum, few in runs]


def _shade(axes: Axes, facts: Dataset) -> None:
    """Shades the regions; borders are halfway between two sizes on the log axis."""
    low, high = axes.get_xlim()
    sizes = [int(tick) for tick in axes.get_xticks()]
    how: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "top"}
    for momentum, first, last in regions(facts, range(min(sizes), max(sizes) + 1)):
        left = low if first == min(sizes) else (first * (first - 1)) ** 0.5
        right = high if last == max(sizes) else (last * (last + 1)) ** 0.5
        axes.axvspan(left, right, color=LOOKS[momentum]["color"], alpha=0.12, linewidth=0)
        axes.axvline(right, color="#999999", linewidth=0.6)
        axes.text((left * right) ** 0.5, 0.98, f"{momentum:g}", fontsize=8, **how)
    axes.set_xlim(low, high)
