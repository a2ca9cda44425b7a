"""Tables of results: flat rows, pivots, CSV, pandas and Parquet. Reads records, changes none."""

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

from .results import FIELDS, Record, write_whole

# What an experiment is; a pivot says over which of these it had to average.
CHOICES = (
    "network",
    "data",
    "setting",
    "method",
    "settings",
    "batch_size",
    "seed",
    "images",
    "order",
    "delta",
)


def latest(records: Sequence[Record]) -> list[Record]:
    """One record an experiment: the newest, if the network or the images were exchanged."""
    newest = {record.experiment: record for record in sorted(records, key=lambda r: r.finished)}
    return [record for record in records if newest[record.experiment] is record]


def flat(record: Record) -> dict[str, Any]:
    """One row: every field that is a single value, and error_<corruption> in percent."""
    row = asdict(record)
    del row["parts"], row["course"]
    row["settings"] = json.dumps(record.settings, sort_keys=True)
    by_name: dict[str, list[float]] = defaultdict(list)
    for part in record.parts:
        by_name[part.corruption].append(part.error)
    return row | {f"error_{name}": fmean(errors) for name, errors in by_name.items()}


@dataclass(frozen=True)
class Pivot:
    """A table of means. averaged: the values of what differs inside a cell, by field."""

    rows: list[Any]
    columns: list[Any]
    cells: dict[tuple[Any, Any], float]
    averaged: dict[str, list[Any]]


def pivot(records: Sequence[Record], row: str, column: str, value: str = "error") -> Pivot:
    """The mean of a field by two others; rows and columns in the order they first come."""
    for name in (row, column, value):
        if name not in FIELDS:
            raise ResultsError(unknown("field", name, FIELDS))
    known = [record for record in latest(records) if getattr(record, value) is not None]
    if not all(isinstance(getattr(record, value), int | float) for record in known):
        raise ResultsError(f"{value} is no number; a pivot shows numbers, such as error or cost")
    cells: dict[tuple[Any, Any], list[Record]] = defaultdict(list)
    for record in known:
        cells[_plain(record, row), _plain(record, column)].append(record)
    means = {cell: fmean(getattr(each, value) for each in few) for cell, few in cells.items()}
    rows, columns = (list(dict.fromkeys(cell[axis] for cell in cells)) for axis in (0, 1))
    return Pivot(rows, _sorted(columns), means, _averaged(list(cells.values())))


def _averaged(cells: Sequence[Sequence[Record]]) -> dict[str, list[Any]]:
    found = {}
    for name in CHOICES:
        if any(len({_plain(record, name) for record in few}) > 1 for few in cells):
            values = dict.fromkeys(_plain(record, name) for few in cells for record in few)
            found[name] = list(values)
    return found


def _plain(record: Record, name: str) -> Any:
    value = record.row if name == "method" else getattr(record, name)
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | tuple) else value


def _sorted(values: list[Any]) -> list[Any]:
    """Numbers from large to small, as the paper's tables; anything else as it came."""
    if all(isinstance(value, int | float) for value in values):
        return sorted(values, reverse=True)
    return values


def best_two(values: Sequence[float | None], digits: int = 2) -> list[int]:
    """1 for the lowest, 2 for the second lowest, else 0; equal as printed, equal in rank.

    A value alone is not the best of anything, nor the larger of two a good second.

    >>> best_two([3.0, 1.0, None, 2.0]), best_two([3.0, 1.0]), best_two([3.0])
    ([0, 1, 0, 2], [0, 1], [0])
    """
    shown = [None if value is None else round(value, digits) for value in values]
    ranks = sorted({value for value in shown if value is not None})
    places = {value: place for place, value in enumerate(ranks[: max(len(ranks) - 1, 0)][:2], 1)}
    return [0 if value is None else places.get(value, 0) for value in shown]


def to_csv(records: Sequence[Record]) -> str:
    """One line a record."""
    rows = [{name: _cell(value) for name, value in flat(each).items()} for each in records]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe, which makes it a text.

    >>> _cell("=HYPERLINK(0)"), _cell("tema"), _cell(-1.5)
    ("'=HYPERLINK(0)", 'tema', -1.5)
    """
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value


def to_frame(records: Sequence[Record]) -> Any:
    """A pandas DataFrame, one row a record."""
    try:
        import pandas as pd  # noqa: PLC0415 - only those who ask for a frame need it
    except ImportError as error:
        raise ResultsError(
            "pandas is not installed; pip install 'realistic-tta[results]' brings it"
        ) from error
    return pd.DataFrame([flat(record) for record in records])


def write_parquet(records: Sequence[Record], path: Path) -> None:
    """The frame as a Parquet file."""
    frame, content = to_frame(records), io.BytesIO()
    try:
        frame.to_parquet(content)
    except ImportError as error:
        raise ResultsError(
            "pyarrow is not installed; pip install 'realistic-tta[results]' brings it"
        ) from error
    write_whole(path, content.getvalue())
