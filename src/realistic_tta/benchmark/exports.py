"""Tables of records: flat rows, pivots, CSV, pandas and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from realistic_tta.errors import ResultsError, unknown

from .results import FIELDS, FIRST_IMAGES, Record, write_file

# The fields that define an experiment; a pivot names those it averages over.
CHOICES = ("model", "dataset", "scenario", "method", "hyperparameters", "batch_size", "seed")
CHOICES_OF_STREAM = ("images", "order", "delta", "severity")


def latest(records: Sequence[Record]) -> list[Record]:
    """One record per experiment: the newest, if the weights or the images have changed."""
    newest = {record.experiment: record for record in sorted(records, key=lambda r: r.finished)}
    return [record for record in records if newest[record.experiment] is record]


def flat(record: Record) -> dict[str, Any]:
    """One row: every scalar field, error_<corruption> and error_in_first_<images> in percent."""
    row = asdict(record)
    del row["parts"], row["error_curve"]
    row["hyperparameters"] = json.dumps(record.hyperparameters, sort_keys=True)
    by_name: dict[str, list[float]] = defaultdict(list)
    for part in record.parts:
        by_name[part.corruption].append(part.error)
    row |= {f"error_{name}": fmean(errors) for name, errors in by_name.items()}
    return row | {f"error_in_first_{n}": error_in_first(record, n) for n in FIRST_IMAGES}


def error_in_first(record: Record, images: int) -> float | None:
    """The mean over the parts of the error in their first images (one of FIRST_IMAGES)."""
    place = FIRST_IMAGES.index(images)
    errors = [100 * p.wrong_in_first[place] / min(p.images, images) for p in record.parts]
    return fmean(errors) if errors else None


@dataclass(frozen=True)
class Pivot:
    """A table of means. averaged: by field, the values that one cell averages over."""

    rows: list[Any]
    columns: list[Any]
    cells: dict[tuple[Any, Any], float]
    averaged: dict[str, list[Any]]


def pivot(records: Sequence[Record], row: str, column: str, value: str = "error") -> Pivot:
    """The mean of one field by two others; rows in order of appearance, columns descending."""
    for name in (row, column, value):
        if name not in FIELDS:
            raise ResultsError(unknown("field", name, FIELDS))
    known = [record for record in latest(records) if getattr(record, value) is not None]
    if not all(isinstance(getattr(record, value), int | float) for record in known):
        raise ResultsError(f"{value} is not a number; expected a field such as error or cost")
    cells: dict[tuple[Any, Any], list[Record]] = defaultdict(list)
    for record in known:
        cells[_plain(record, row), _plain(record, column)].append(record)
    means = {cell: fmean(getattr(each, value) for each in few) for cell, few in cells.items()}
    rows, columns = (list(dict.fromkeys(cell[axis] for cell in cells)) for axis in (0, 1))
    if all(isinstance(each, int | float) for each in columns):
        columns.sort(reverse=True)
    averaged = {
        name: list(dict.fromkeys(_plain(record, name) for few in cells.values() for record in few))
        for name in CHOICES + CHOICES_OF_STREAM
        if any(len({_plain(record, name) for record in few}) > 1 for few in cells.values())
    }
    return Pivot(rows, columns, means, averaged)


def _plain(record: Record, name: str) -> Any:
    value = record.row if name == "method" else getattr(record, name)
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | tuple) else value


def best_two(values: Sequence[float | None], digits: int = 2) -> list[int]:
    """1 for the lowest value, 2 for the second lowest, else 0; ties, as printed, share a rank.

    The largest value never gets a rank.

    >>> best_two([3.0, 1.0, None, 2.0]), best_two([3.0, 1.0]), best_two([3.0])
    ([0, 1, 0, 2], [0, 1], [0])
    """
    shown = [None if value is None else round(value, digits) for value in values]
    order = sorted({value for value in shown if value is not None})[:-1][:2]
    return [order.index(value) + 1 if value in order else 0 for value in shown]


def to_csv(records: Sequence[Record]) -> str:
    """One line per record."""
    rows = [{name: _cell(value) for name, value in flat(each).items()} for each in records]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Prefixes text that a spreadsheet would run as a formula with an apostrophe.

    >>> _cell("=HYPERLINK(0)"), _cell("tema"), _cell(-1.5)
    ("'=HYPERLINK(0)", 'tema', -1.5)
    """
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value


def to_frame(records: Sequence[Record]) -> Any:
    """A pandas DataFrame with one row per record."""
    try:
        import pandas as pd  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise _not_installed("pandas") from error
    return pd.DataFrame([flat(record) for record in records])


def write_parquet(records: Sequence[Record], path: Path) -> None:
    """Writes the DataFrame as a Parquet file."""
    frame, content = to_frame(records), io.BytesIO()
    try:
        frame.to_parquet(content)
    except ImportError as error:
        raise _not_installed("pyarrow") from error
    write_file(path, content.getvalue())


def _not_installed(package: str) -> ResultsError:
    return ResultsError(f"{package} is not installed; run pip install 'realistic-tta[results]'")
