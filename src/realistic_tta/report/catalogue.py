"""All figures by name, and the call that draws one from everything in a folder of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from matplotlib.figure import Figure

from realistic_tta.benchmark.results import Record
from realistic_tta.errors import ResultsError, unknown

from .channel_mean import channel_mean
from .class_diversity import draw_class_diversity
from .cost_against_error import cost_against_error
from .error_by_batch_size import error_by_batch_size
from .error_by_corruption import error_by_corruption
from .error_over_stream import error_over_stream
from .layers import layers
from .momentum_analysis import momentum_analysis
from .selection import Traces, by_group, missing

ONE_FOR_ALL: dict[str, Callable[[Sequence[Record]], Figure]] = {
    "class_diversity": lambda _: draw_class_diversity(),
    "momentum_analysis": momentum_analysis,
}
ONE_A_GROUP: dict[str, Callable[[Sequence[Record], Traces], Figure]] = {
    "error_by_batch_size": lambda records, _: error_by_batch_size(records),
    "error_by_corruption": lambda records, _: error_by_corruption(records),
    "error_over_stream": lambda records, _: error_over_stream(records),
    "cost_against_error": lambda records, _: cost_against_error(records),
    "channel_mean": channel_mean,
    "layers": layers,
}
FIGURES = (*ONE_A_GROUP, *ONE_FOR_ALL)


def draw(name: str, records: Sequence[Record], traces: Traces) -> Iterator[tuple[str, Figure]]:
    """Every figure of that name that the records allow, with a name for its file.

    An error says what is missing if they allow none.
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
            yield f"{name}.{group.stem()}", ONE_A_GROUP[name](few, traces)
        except ResultsError as problem:
            problems.append(problem)
    if len(problems) == len(groups):
        raise problems[0] if problems else missing(name, "finished experiments", records)
