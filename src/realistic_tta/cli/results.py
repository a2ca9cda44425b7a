"""`rtta results`: prints, filters and exports the records of `rtta bench`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from realistic_tta.errors import OptionError

from . import terminal
from .options import OUT, add_filters, listed, selected

if TYPE_CHECKING:
    from realistic_tta.benchmark.exports import Pivot
    from realistic_tta.benchmark.results import Record


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `results`."""
    results = commands.add_parser(
        "results",
        help="print, filter and export the records of `rtta bench`",
        description="docs/reference/result_fields.md explains every field.",
    )
    results.add_argument("--dir", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    add_filters(results)
    results.add_argument(
        "--pivot",
        type=listed(str),
        metavar="ROW,COLUMN",
        help="print a table, such as method,batch_size",
    )
    results.add_argument("--value", default="error", metavar="FIELD", help="of it; default: error")
    results.add_argument("--spark", action="store_true", help="show error curves at any width")
    results.add_argument("--csv", type=Path, metavar="FILE")
    results.add_argument("--parquet", type=Path, metavar="FILE")
    results.add_argument("--json", action="store_true", help="print whole records")
    results.set_defaults(run=_results)


def _results(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from realistic_tta.benchmark.exports import to_csv, write_parquet
    from realistic_tta.benchmark.results import Results, write_file

    pivot = arguments.pivot
    if pivot and len(pivot) != 2:
        raise OptionError(f'pivot is "{",".join(pivot)}"; expected two fields')
    records = in_order(Results(arguments.dir, create=False).read(**selected(arguments)))
    if arguments.csv:
        write_file(arguments.csv, to_csv(records).encode())
    if arguments.parquet:
        write_parquet(records, arguments.parquet)
    if arguments.json:
        print(json.dumps([asdict(record) for record in records], indent=1))
    elif pivot:
        row, column = pivot
        print_pivots(records, row, column, arguments.value)
    elif not arguments.csv and not arguments.parquet:
        print_list(records, spark=arguments.spark)


def in_order(records: Sequence[Record]) -> list[Record]:
    """Sorted by dataset, scenario, method (in the order of METHODS), batch size and seed."""
    from realistic_tta import METHODS

    places = {name: place for place, name in enumerate(METHODS)}

    def key(r: Record) -> tuple[str | int, ...]:
        return r.dataset, r.scenario, places.get(r.method, len(places)), -r.batch_size, r.seed

    return sorted(records, key=key)


LISTED = ("method", "batch_size", "scenario", "dataset", "model", "seed")
SPARK = 20  # characters


def print_list(records: Sequence[Record], *, spark: bool = False) -> None:
    """One line per record; values that all records share are printed once, above.

    spark: show error curves even if the lines become wider than the terminal.
    """
    same = [name for name in LISTED[2:] if len({getattr(r, name) for r in records}) == 1]
    shared = ", ".join(f"{name} {getattr(records[0], name)}" for name in same)
    print(f"{len(records)} records{f': {shared}' if shared else ''}")
    names = [name for name in LISTED if name not in same]
    rows = [(*(name.replace("_", " ") for name in names), "error", "cost", "seconds")]
    for each in records:
        numbers = map(_number, (each.error, each.cost, each.seconds))
        rows.append((*(str(getattr(each, name)) for name in names), *numbers))
    lines, width = terminal.columns_as_text(rows), terminal.text_width()
    if spark or max(map(len, lines)) + 2 + SPARK <= width:
        curves = [record.error_curve for record in records]
        drawn = terminal.sparks(curves, SPARK, terminal.supported_bars())
        rows = list(zip(lines, ["error curve", *drawn], strict=True))
        lines = terminal.columns_as_text(rows)
    print(lines[0])
    for line, record in zip(lines[1:], records, strict=True):
        failed = "" if record.status == "done" else f"  failed: {record.message}"
        print(terminal.cut(line + failed, width) if failed else line)


def print_pivots(records: Sequence[Record], row: str, column: str, value: str) -> None:
    """One table per dataset, model and scenario, unless these are rows or columns.

    In tables of errors by method, the best and second best of every column are marked.
    """
    from realistic_tta.benchmark.exports import latest, pivot

    fixed = [name for name in ("dataset", "model", "scenario") if name not in (row, column)]

    def group(record: Record) -> tuple[str, ...]:
        return tuple(getattr(record, name) for name in fixed)

    marks = (row, value) == ("method", "error")
    for names, few in groupby(sorted(latest(records), key=group), key=group):
        found = pivot(list(few), row, column, value)
        print(f"\n{value}: {', '.join(names)}")
        head = (row, *map(str, found.columns))
        print("\n".join(terminal.columns_as_text([head, *_rows(found, marks=marks)])))
        for name, values in found.averaged.items():
            print(f"averaged over {name}: {', '.join(map(str, values))}")
        if marks and len(found.rows) > 1:
            print(terminal.legend(styles=terminal.has_styles()))


def _rows(found: Pivot, *, marks: bool) -> list[tuple[str, ...]]:
    from realistic_tta.benchmark.exports import best_two

    cells = [[found.cells.get((name, each)) for each in found.columns] for name in found.rows]
    ranks = zip(*map(best_two, zip(*cells, strict=True)), strict=True)
    styles = terminal.has_styles()
    return [
        (
            str(name),
            *(
                terminal.marked(_number(value), rank * marks, styles=styles)
                for value, rank in zip(values, row_ranks, strict=True)
            ),
        )
        for name, values, row_ranks in zip(found.rows, cells, ranks, strict=True)
    ]


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"
