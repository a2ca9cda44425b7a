"""`rtta results`: prints, filters and exports what `rtta bench` has found."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from realistic_tta.benchmark.exports import Pivot, best_two, latest, pivot, to_csv, write_parquet
from realistic_tta.benchmark.results import Record, Results, write_whole

from .bench_run import OUT
from .terminal import (
    bars_here,
    columns_as_text,
    cut,
    has_styles,
    legend,
    marked,
    sparks,
    text_width,
)

FILTERS: dict[str, Any] = {
    "setting": str,
    "method": str,
    "data": str,
    "network": str,
    "status": str,
    "batch_size": int,
    "seed": int,
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `results`."""
    results = commands.add_parser(
        "results",
        help="print, filter and export what `rtta bench` has found",
        description="docs/result_fields.md says what every field means.",
    )
    results.add_argument("--dir", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    add_filters(results)
    results.add_argument("--pivot", metavar="ROW,COLUMN", help="a table, such as method,batch_size")
    results.add_argument("--value", default="error", metavar="FIELD", help="in it; default: error")
    results.add_argument("--spark", action="store_true", help="error over the stream, however wide")
    results.add_argument("--csv", type=Path, metavar="FILE")
    results.add_argument("--parquet", type=Path, metavar="FILE")
    results.add_argument("--json", action="store_true", help="whole records, for machines")
    results.set_defaults(run=_results)


def add_filters(command: argparse.ArgumentParser) -> None:
    """Options that choose records."""
    for name in FILTERS:
        command.add_argument(f"--{name.replace('_', '-')}", metavar="LIST", help="only these")


def wanted(arguments: argparse.Namespace) -> dict[str, list[Any]]:
    """What the filters ask for, by field."""
    given = {name: getattr(arguments, name) for name in FILTERS}
    return {name: _listed(name, text) for name, text in given.items() if text is not None}


def _results(arguments: argparse.Namespace) -> None:
    records = in_order(Results(arguments.dir, create=False).read(**wanted(arguments)))
    if arguments.csv:
        write_whole(arguments.csv, to_csv(records).encode())
    if arguments.parquet:
        write_parquet(records, arguments.parquet)
    if arguments.json:
        print(json.dumps([asdict(record) for record in records], indent=1))
    elif arguments.pivot:
        row, column = _axes(arguments.pivot)
        print_pivots(records, row, column, arguments.value)
    elif not arguments.csv and not arguments.parquet:
        print_list(records, spark=arguments.spark)


def in_order(records: Sequence[Record]) -> list[Record]:
    """By method as the catalogue lists them, then from large batches to small."""
    from realistic_tta.methods.catalogue import METHODS

    places = {name: place for place, name in enumerate(METHODS)}
    return sorted(
        records,
        key=lambda r: (r.data, r.setting, places.get(r.method, len(places)), -r.batch_size, r.seed),
    )


def _listed(name: str, text: str) -> list[Any]:
    try:
        return [FILTERS[name](word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f'{name} is "{text}"; expected numbers such as 4,2,1') from None


def _axes(text: str) -> tuple[str, str]:
    words = text.split(",")
    if len(words) != 2:
        raise ValueError(f'pivot is "{text}"; expected two fields such as method,batch_size')
    return words[0], words[1]


LISTED = ("method", "batch_size", "setting", "data", "network", "seed")
SPARK = 20  # signs


def print_list(records: Sequence[Record], *, spark: bool = False) -> None:
    """A line a record; what is the same in all is said once, above.

    spark: with the error over the stream even where that makes lines too long for the terminal.
    """
    same = [name for name in LISTED[2:] if len({getattr(r, name) for r in records}) == 1]
    told = ", ".join(f"{name} {getattr(records[0], name)}" for name in same)
    print(f"{len(records)} records{f': {told}' if told else ''}")
    names = [name for name in LISTED if name not in same]
    rows = [(*(name.replace("_", " ") for name in names), "error", "cost", "seconds")]
    rows += [(*(str(getattr(each, name)) for name in names), *_figures(each)) for each in records]
    lines, width = columns_as_text(rows), text_width()
    if spark or max(map(len, lines)) + 2 + SPARK <= width:
        courses = sparks([record.course for record in records], SPARK, bars_here())
        lines = columns_as_text(list(zip(lines, ["over the stream", *courses], strict=True)))
    print(lines[0])
    for line, record in zip(lines[1:], records, strict=True):
        print(line if record.status == "done" else cut(f"{line}  failed: {record.message}", width))


def _figures(record: Record) -> tuple[str, ...]:
    return _figure(record.error), _figure(record.cost), _figure(record.seconds)


def print_pivots(records: Sequence[Record], row: str, column: str, value: str) -> None:
    """A table a data set, network and setting, unless the pivot is by these.

    Of methods' errors the best and the second best of every column are marked.
    """
    free = [name for name in ("data", "network", "setting") if name not in (row, column)]

    def group(record: Record) -> tuple[str, ...]:
        return tuple(getattr(record, name) for name in free)

    marks = (row, value) == ("method", "error")
    for names, few in groupby(sorted(latest(records), key=group), key=group):
        found = pivot(list(few), row, column, value)
        print(f"\n{value}: {', '.join(names)}")
        head = (row, *map(str, found.columns))
        print("\n".join(columns_as_text([head, *_rows(found, marks=marks)])))
        for name, values in found.averaged.items():
            print(f"averaged over {name}: {', '.join(map(str, values))}")
        if marks and len(found.rows) > 1:
            print(legend(styles=has_styles()))


def _rows(found: Pivot, *, marks: bool) -> list[tuple[str, ...]]:
    cells = [[found.cells.get((name, each)) for each in found.columns] for name in found.rows]
    ranks = zip(*map(best_two, zip(*cells, strict=True)), strict=True)
    styles = has_styles()
    return [
        (
            str(name),
            *(marked(_figure(v), r * marks, styles=styles) for v, r in zip(*row, strict=True)),
        )
        for name, *row in zip(found.rows, cells, ranks, strict=True)
    ]


def _figure(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"
