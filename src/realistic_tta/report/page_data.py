"""Everything the page shows, as plain JSON values, computed from records. page.py embeds it.

A group is what may share a table: one data set, network, setting and stream. Inside it a row is a
method, and a cell the mean over seeds of the newest record of every experiment.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from realistic_tta.benchmark.exports import latest
from realistic_tta.benchmark.results import DONE, FIELDS, Record

from .headline import headline
from .page_layers import Layers
from .page_tables import paper_errors, table

SCALARS = tuple(name for name in FIELDS if name not in ("parts", "course"))


def page_data(records: Sequence[Record], layers: Mapping[str, Layers]) -> dict[str, Any]:
    """records: in the order of the tables. layers: what the layers did, by record key."""
    corruptions = list(dict.fromkeys(part.corruption for r in records for part in r.parts))
    positions, courses = _courses(records)
    return {
        "fields": SCALARS,
        "rows": [[getattr(record, name) for name in SCALARS] for record in records],
        "corruptions": corruptions,
        "parts": [
            [[corruptions.index(part.corruption), *part[1:]] for part in record.parts]
            for record in records
        ],
        "positions": positions,
        "courses": courses,
        "groups": _groups(records),
        "layers": layers,
    }


def _courses(records: Sequence[Record]) -> tuple[list[Any], list[Any]]:
    """Images seen, each list once, as streams share them; and a record's errors to one decimal."""
    places: dict[tuple[int, ...], int] = {}
    courses: list[Any] = []
    for record in records:
        seen = tuple(point[0] for point in record.course)
        place = places.setdefault(seen, len(places))
        courses.append([place, [round(error, 1) for _, error in record.course]])
    return [list(seen) for seen in places], courses


def _stream(record: Record) -> tuple[Any, ...]:
    choices = (record.setting, record.data, record.network)
    return (*choices, record.images, record.order, record.delta)


def _label(record: Record) -> str:
    told = [record.setting, record.data, record.network]
    told += [f"{record.images} images"] if record.images is not None else []
    told += [f"order {record.order}"] if record.order != "shuffled" else []
    told += [f"delta {record.delta}"] if record.delta is not None else []
    return " · ".join(told)


def _groups(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The largest first: it is what the page opens with."""
    places = {record.key: place for place, record in enumerate(records)}
    found: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in latest(records):
        found[_stream(record)].append(record)
    by_size = sorted(found.values(), key=len, reverse=True)
    return [_group(few, [places[record.key] for record in few]) for few in by_size]


def _group(few: Sequence[Record], places: list[int]) -> dict[str, Any]:
    cells: dict[tuple[str, int], list[float]] = defaultdict(list)
    for record in few:
        if record.status == DONE and record.error is not None:
            cells[record.row, record.batch_size].append(record.error)
    methods = list(dict.fromkeys(record.row for record in few))
    sizes = sorted({record.batch_size for record in few}, reverse=True)
    errors = with_source(cells, sizes)
    return {
        "label": _label(few[0]),
        "headline": [told.replace(" %", "\N{NO-BREAK SPACE}%") for told in headline(errors)],
        "methods": methods,
        "sizes": sizes,
        "table": table(errors, methods, sizes),
        "paper": _paper(few[0], methods, sizes),
        "seeds": sorted({record.seed for record in few}),
        "records": places,
        "series": [methods.index(record.row) for record in few],
        "command": command(few),
    }


def with_source(
    cells: Mapping[tuple[str, int], Sequence[float]], sizes: Sequence[int]
) -> dict[tuple[str, int], float]:
    """Means over the seeds; the network as trained errs alike at every size, measured or not.

    >>> with_source({("source", 4): [40.0], ("tbn", 1): [80.0, 90.0]}, [4, 1])
    {('source', 4): 40.0, ('source', 1): 40.0, ('tbn', 1): 85.0}
    """
    found = {cell: fmean(errors) for cell, errors in cells.items()}
    source = [error for (method, _), error in found.items() if method == "source"]
    return {("source", size): source[0] for size in sizes if source} | found


def _paper(example: Record, methods: Sequence[str], sizes: Sequence[int]) -> dict[str, Any] | None:
    """The paper's figures for our methods, at our batch sizes if it has any of them."""
    data = example.data.removesuffix("-sample")
    errors = paper_errors(data, example.setting)
    shared = [method for method in methods if method in {known for known, _ in errors}]
    if not shared:
        return None
    columns = {n for _, n in errors if n in sizes} or {n for _, n in errors}
    return {"data": data, **table(errors, shared, sorted(columns, reverse=True))}


def command(few: Sequence[Record]) -> str:
    """What measures the group again; settings other than the defaults need a file of the grid."""
    first, plain = few[0], [record for record in few if not record.settings] or list(few)
    options: dict[str, Any] = {
        "data": first.data,
        "network": first.network,
        "setting": first.setting,
        "methods": ",".join(dict.fromkeys(record.method for record in plain)),
        "batch-sizes": _listed({record.batch_size for record in plain}),
        "seeds": _listed({record.seed for record in plain}),
        "images": first.images,
        "order": first.order if first.order != "shuffled" else None,
        "delta": first.delta,
    }
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value]
    return " ".join(["rtta bench", *words])


def _listed(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers, reverse=True)))


def embedded(data: Mapping[str, Any]) -> str:
    r"""JSON that may stand inside a script element: nothing in it can end the element.

    >>> embedded({"message": "</script>"})
    '{"message":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
