"""A method without each of its pieces in turn: what to run, and its errors with their spread.

commands/ablate.py prints it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from realistic_tta.benchmark.results import Record

from .experiment import Experiment, grid

PIECES: dict[str, dict[str, dict[str, Any]]] = {  # of a method: what a row leaves out, and how
    "realistic": {
        "no total variance": {"total_variance": False},
        "no warm start": {"warm_start": False},
        "one memory": {"several_memories": False},
        "no source": {"lean_on_source": False},
        "no label runs": {"label_runs": False},
        "no changes": {"changes": False},
        "no mirror": {"mirror": 0},
    }
}
BESIDE = ("source", "rectified_tema")  # rows to compare with

Cell = tuple[str, str, int]  # row, setting, batch size


class Error(NamedTuple):
    """Mean over seeds, in percent, and the standard deviation; None from one seed alone."""

    mean: float
    spread: float | None


def rows_of(method: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """By its name, each row's method and settings.

    >>> rows_of("realistic")["one memory"]
    ('realistic', {'several_memories': False})
    """
    rows: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in (*BESIDE, method)}
    return rows | {name: (method, left_out) for name, left_out in PIECES[method].items()}


def ablation(method: str, axes: Mapping[str, Any]) -> dict[Cell, list[Experiment]]:
    """The experiments of each cell, one a seed. axes: as in `grid`."""
    cells: dict[Cell, list[Experiment]] = {}
    for name, (run, settings) in rows_of(method).items():
        for each in grid({**axes, "method": [run]}, {run: settings}):
            cells.setdefault((name, each.setting, each.batch_size), []).append(each)
    return cells


def errors_of(
    cells: Mapping[Cell, Sequence[Experiment]], records: Sequence[Record]
) -> dict[Cell, Error]:
    """Of every cell whose seeds are all done."""
    known = {record.experiment: record.error for record in records}
    errors = {}
    for cell, several in cells.items():
        found = [error for each in several if (error := known.get(each.id)) is not None]
        if len(found) == len(several):
            errors[cell] = Error(fmean(found), stdev(found) if len(found) > 1 else None)
    return errors
