"""All figures by name, and the call that draws one from a set of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record
from realistic_tta.errors import ResultsError, unknown

from . import figures, momentum_figures
from .selection import Traces, by_group, missing

ONE_FOR_ALL: dict[str, Callable[[Sequence[Record]], Figure]] = {
    "class_diversity": lambda _: momentum_figures.draw_class_diversity(),
    "momentum_analysis": momentum_figures.momentum_analysis,
}
ONE_PER_GROUP: dict[str, Callable[[Sequence[Record], Traces], Figure]] = {
    "error_by_batch_size": lambda records, _: figures.error_by_batch_size(records),
    "error_by_corruption": lambda records, _: figures.error_by_corruption(records),
    "error_over_stream": lambda records, _: figures.error_over_stream(records),
    "cost_against_error": lambda records, _: figures.cost_against_error(records),
    "layers": figures.layers,
}
FIGURES = (*ONE_PER_GROUP, *ONE_FOR_ALL)


def draw(name: str, records: Sequence[Record], traces: Traces) -> Iterator[tuple[str, Figure]]:
    """Every figure of that name that the records allow, with a file name without ending.

    Raises ResultsError, which says what is missing, if they allow none.
    """
    if name not in FIGURES:
        raise ResultsError(unknown("figure", name, FIGURES))
    if name in ONE_FOR_ALL:
        yield name, ONE_FOR_ALL[name](records)
        return
    problems: list[ResultsError] = []
    groups = by_group(records)
    for group, few in groups.items():
        try:
            yield f"{name}.{group.stem()}", ONE_PER_GROUP[name](few, traces)
        except ResultsError as problem:
            problems.append(problem)
    if len(problems) == len(groups):
        raise problems[0] if problems else missing(name, "finished experiments", records)
