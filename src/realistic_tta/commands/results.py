"""`rtta results`: prints, filters and exports what `rtta bench` has found."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from realistic_tta.exports import latest, pivot, to_csv, write_parquet
from realistic_tta.results import Record, Results, write_whole

from .bench import OUT

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
        _print_list(records)


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


def _print_list(records: Sequence[Record]) -> None:
    print(f"{len(records)} records")
    head = (
        "method",
        "batch size",
        "setting",
        "data",
        "network",
        "seed",
        "error",
        "cost",
        "seconds",
    )
    rows = [head]
    rows += [
        (
            record.method,
            str(record.batch_size),
            record.setting,
            record.data,
            record.network,
            str(record.seed),
            _figure(record.error) if record.status == "done" else f"failed: {record.message}",
            _figure(record.cost),
            _figure(record.seconds),
        )
        for record in records
    ]
    _print_columns(rows)


def print_pivots(records: Sequence[Record], row: str, column: str, value: str) -> None:
    """A table a data set, network and setting, unless the pivot is by these."""
    free = [name for name in ("data", "network", "setting") if name not in (row, column)]

    def group(record: Record) -> tuple[str, ...]:
        return tuple(getattr(record, name) for name in free)

    for names, few in groupby(sorted(latest(records), key=group), key=group):
        found = pivot(list(few), row, column, value)
        print(f"\n{value}: {', '.join(names)}")
        rows = [(row, *map(str, found.columns))]
        rows += [
            (str(name), *(_figure(found.cells.get((name, each))) for each in found.columns))
            for name in found.rows
        ]
        _print_columns(rows)
        for name, values in found.averaged.items():
            print(f"averaged over {name}: {', '.join(map(str, values))}")


def _figure(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())
