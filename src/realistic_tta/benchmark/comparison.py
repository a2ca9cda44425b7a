"""Sets measured errors beside the paper's: pure functions of numbers. See paper_tables.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from realistic_tta.benchmark.results import Record

from .experiment import Experiment
from .paper_tables import AVERAGE, Block, Cell, Column, PaperTable, Row, printed

Figures = dict[tuple[str, Column], float]  # by method and column; what is not known is not there


@dataclass(frozen=True)
class Comparison:
    """One block. difference: measured minus paper, in points; below 0 we are better."""

    block: Block
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    measured: Figures
    paper: Figures
    difference: Figures


def compare(
    table: PaperTable,
    block: Block,
    rows: Sequence[Row],
    sizes: Sequence[int],
    errors: Mapping[tuple[str, int], float],
) -> Comparison:
    """errors: measured, by method and batch size.

    An average is over the columns shown, and only there if all of them are. The paper's own is
    taken where all of its columns are shown. The difference is the mean of the row's differences,
    so that it compares like with like also where the paper's own leaves a column out.
    """
    paper = _paper(table, block, rows, sizes)
    measured: Figures = {(m, size): error for (m, size), error in errors.items() if size in sizes}
    difference: Figures = {
        cell: error - paper[cell] for cell, error in measured.items() if cell in paper
    }
    whole = set(sizes) == set(block.batch_sizes)
    return Comparison(
        block,
        tuple(rows),
        (*sizes, AVERAGE),
        measured | _averages(measured, rows, sizes),
        paper if whole else paper | _averages(paper, rows, sizes),
        difference | _averages(difference, rows, sizes),
    )


def _paper(table: PaperTable, block: Block, rows: Sequence[Row], sizes: Sequence[int]) -> Figures:
    numbers, whole = printed(table), set(sizes) == set(block.batch_sizes)
    columns: tuple[Column, ...] = (*sizes, AVERAGE) if whole else tuple(sizes)
    wanted = {
        (row.method, column): Cell(block.data, block.setting, row.method, column)
        for row in rows
        for column in columns
    }
    return {place: numbers[cell] for place, cell in wanted.items() if cell in numbers}


def _averages(figures: Figures, rows: Sequence[Row], sizes: Sequence[int]) -> Figures:
    """Of the rows that have a figure in every column."""
    full = [row.method for row in rows if all((row.method, size) in figures for size in sizes)]
    return {(method, AVERAGE): fmean(figures[method, size] for size in sizes) for method in full}


def mean_errors(
    experiments: Mapping[tuple[str, int], Collection[Experiment]], records: Sequence[Record]
) -> dict[tuple[str, int], float]:
    """Percent by method and batch size, averaged over seeds; only where every seed is done."""
    errors = {record.experiment: record.error for record in records}
    means = {}
    for place, several in experiments.items():
        found = [errors.get(each.id) for each in several]
        known = [error for error in found if error is not None]
        if known and len(known) == len(found):
            means[place] = fmean(known)
    return means


Mark = Literal["best", "second"]


def marks(figures: Figures, rows: Sequence[Row]) -> dict[tuple[str, Column], Mark]:
    """The lowest and the second lowest error of each column among the training-free methods.

    As in the paper; equal figures, at two decimals, are marked alike.

    >>> rows = [Row("TF", "TBN", "tbn"), Row("TF", "TEMA", "tema"), Row("TR", "TENT", "tent")]
    >>> marks({("tbn", 4): 31.6, ("tema", 4): 21.3, ("tent", 4): 20.0}, rows)
    {('tbn', 4): 'second', ('tema', 4): 'best'}
    """
    ranked = {row.method for row in rows if row.kind == "TF"}
    columns: dict[Column, set[float]] = defaultdict(set)
    for (method, column), figure in figures.items():
        if method in ranked:
            columns[column].add(round(figure, 2))
    places = {column: sorted(values) for column, values in columns.items()}
    found: dict[tuple[str, Column], Mark] = {}
    for (method, column), figure in figures.items():
        place = places[column].index(round(figure, 2)) if method in ranked else 2
        if place < 2:
            found[method, column] = "best" if place == 0 else "second"
    return found
