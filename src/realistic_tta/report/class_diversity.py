"""Class diversity against batch size, of the current batch and of TEMA (the paper's Figure 1 d).

From formulas alone: it needs no run.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from realistic_tta.functional.class_diversity import class_diversity
from realistic_tta.functional.momentum import choose_momentum, expanded_scope

from .data_facts import PAPERS, DataFacts
from .style import STYLES, batch_size_axis, in_style, legend_beside, new_panels

SIZES = (1, 2, 4, 16, 64, 200)  # the paper's


@in_style
def draw_class_diversity() -> Figure:
    """One panel for each of the paper's data sets."""
    title = "How many classes the statistics have seen (Proposition 1, Eq. 5)"
    figure, panels = new_panels(1, len(PAPERS), (3.6, 3.2), title)
    for axes, facts in zip(panels, PAPERS.values(), strict=True):
        source = class_diversity(facts.classes, facts.source_batch_size)
        averaged = [averaged_diversity(facts, size) for size in SIZES]
        current = [class_diversity(facts.classes, size) for size in SIZES]
        axes.axhline(source, label="a batch of the training", **_line("source"))
        axes.plot(SIZES, averaged, label="TEMA, momentum by Eq. 5", **STYLES["tema"])
        axes.plot(SIZES, current, label="the current batch alone", **STYLES["tbn"])
        batch_size_axis(axes, SIZES)
        axes.set_ylim(bottom=0)
        axes.set_title(f"{facts.title}: {facts.classes} classes")
    panels[0].set_ylabel("expected classes (count)")
    legend_beside(figure)
    return figure


def averaged_diversity(facts: DataFacts, batch_size: int) -> float:
    """Expected classes in what TEMA averages, with the momentum of Eq. 5.

    >>> round(averaged_diversity(DataFacts("", 10, 128), 4), 2)
    9.03
    """
    momentum = choose_momentum(facts.classes, facts.source_batch_size, batch_size)
    return class_diversity(facts.classes, expanded_scope(momentum, batch_size))


def _line(method: str) -> dict[str, Any]:
    return {name: STYLES[method][name] for name in ("color", "linestyle")}
