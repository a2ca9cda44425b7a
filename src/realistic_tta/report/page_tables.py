"""Tables of the page: error by method and batch size, best and second best marked; the paper's."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from importlib.resources import files
from statistics import fmean
from typing import Any

from realistic_tta.benchmark.exports import best_two

Errors = Mapping[tuple[str, int], float]
PAPER = "assets/paper_results.csv"


def table(errors: Errors, methods: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """A row a method: its errors and their mean; marks: 1 for a column's best, 2 for its second."""
    rows = [[errors.get((method, size)) for size in sizes] for method in methods]
    for row in rows:
        row.append(_mean(row))
    columns = [best_two(column) for column in zip(*rows, strict=True)]
    marks = [list(row) for row in zip(*columns, strict=True)]
    return {"methods": list(methods), "sizes": list(sizes), "errors": rows, "marks": marks}


def _mean(row: Sequence[float | None]) -> float | None:
    """Of a whole row; a mean over some of the sizes could not be compared with another's."""
    known = [error for error in row if error is not None]
    return fmean(known) if known and len(known) == len(row) else None


def paper_errors(data: str, setting: str) -> dict[tuple[str, int], float]:
    """The paper's figures for a data set such as "cifar10-c"; empty if it has none.

    Its ablation, where a method is also in the main tables, does not count twice.

    >>> paper_errors("cifar10-c", "continual")["tent", 200]
    19.55
    """
    found: dict[tuple[str, int], float] = {}
    text = (files("realistic_tta") / PAPER).read_text()
    for row in csv.DictReader(text.splitlines()):
        here = (row["dataset"].replace("_", "-"), row["setting"]) == (data, setting)
        if here and row["batch_size"] != "avg":
            cell = row["method"], int(row["batch_size"])
            if row["table"] != "ablation" or cell not in found:
                found[cell] = float(row["error_percent"])
    return found
