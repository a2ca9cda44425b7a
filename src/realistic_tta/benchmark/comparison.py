"""Compares measured errors with the paper's tables (paper_tables.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from .experiment import Experiment
from .exports import best_two
from .paper_tables import AVERAGE, Block, Cell, Column, PaperTable, Row, printed
from .results import Record

Errors = dict[tuple[str, Column], float]  # percent, by method and column


@dataclass(frozen=True)
class Comparison:
    """One block of a table. difference: measured minus paper, in percentage points."""

    block: Block
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    measured: Errors
    paper: Errors
    difference: Errors


def compare(
    table: PaperTable,
    block: Block,
    rows: Sequence[Row],
    sizes: Sequence[int],
    errors: Mapping[tuple[str, int], float],
) -> Comparison:
    """Sets the measured errors, by method and batch size, beside the paper's.

    Averages are over the columns shown and exist only for complete rows. The paper's own average
    is used where all of its columns are shown. The average difference is the mean of the row's
    differences, so it is correct even where the paper's average leaves out a column.
    """
    complete = set(sizes) == set(block.batch_sizes)
    numbers = printed(table)
    columns: list[Column] = [*sizes]
    if complete:
        columns.append(AVERAGE)
    paper: Errors = {
        (row.method, column): numbers[cell]
        for row in rows
        for column in columns
        if (cell := Cell(block.dataset, block.scenario, row.method, column)) in numbers
    }
    measured: Errors = {(m, size): error for (m, size), error in errors.items() if size in sizes}
    difference: Errors = {
        cell: error - paper[cell] for cell, error in measured.items() if cell in paper
    }
    return Comparison(
        block,
        tuple(rows),
        (*sizes, AVERAGE),
        measured | _averages(measured, rows, sizes),
        paper if complete else paper | _averages(paper, rows, sizes),
        difference | _averages(difference, rows, sizes),
    )


def _averages(errors: Errors, rows: Sequence[Row], sizes: Sequence[int]) -> Errors:
    full = [row.method for row in rows if all((row.method, size) in errors for size in sizes)]
    return {(method, AVERAGE): fmean(errors[method, size] for size in sizes) for method in full}


def mean_errors(
    experiments: Mapping[tuple[str, int], Collection[Experiment]], records: Sequence[Record]
) -> dict[tuple[str, int], float]:
    """Errors in percent by method and batch size, averaged over seeds, where all are finished."""
    errors = {record.experiment: record.error for record in records if record.error is not None}
    return {
        place: fmean(errors[each.id] for each in several)
        for place, several in experiments.items()
        if several and all(each.id in errors for each in several)
    }


def ranks(errors: Errors, rows: Sequence[Row]) -> dict[tuple[str, Column], int]:
    """1 for the best and 2 for the second best training-free method of each column.

    >>> rows = [Row("TF", "TBN", "tbn"), Row("TF", "TEMA", "tema"), Row("TF", "LAME", "lame")]
    >>> ranks({("tbn", 4): 31.6, ("tema", 4): 21.3, ("lame", 4): 44.0}, rows)
    {('tbn', 4): 2, ('tema', 4): 1}
    """
    ranked = [row.method for row in rows if row.kind == "TF"]
    found: dict[tuple[str, Column], int] = {}
    for column in dict.fromkeys(column for _, column in errors):
        places = best_two([errors.get((method, column)) for method in ranked])
        found |= {(m, column): rank for m, rank in zip(ranked, places, strict=True) if rank}
    return found
