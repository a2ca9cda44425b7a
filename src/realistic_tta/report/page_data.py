"""The data of the HTML page, as JSON values, computed from records.

A group shares a table: one dataset, model, scenario and stream. Its rows are methods; a cell is the
mean over seeds of the newest record of each experiment.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from realistic_tta.benchmark.exports import best_two, error_in_first, latest
from realistic_tta.benchmark.paper_tables import paper_errors
from realistic_tta.benchmark.results import DEFAULT_SEVERITY, DONE, FIELDS, FIRST_IMAGES, Record
from realistic_tta.benchmark.traces import Trace, read_trace

from .headline import headline

SCALARS = tuple(name for name in FIELDS if name not in ("parts", "error_curve"))
Errors = Mapping[tuple[str, int], float]
Layers = dict[str, Any]  # names (layer,), images (point,), source_weight, divergence (layer, point)
POINTS = 100  # of a trace, at most
BUDGET = 1_000_000  # characters of all traces together


def page_data(records: Sequence[Record], layers: Mapping[str, Layers]) -> dict[str, Any]:
    """records: in the order of the tables. layers: by record key."""
    corruptions = list(dict.fromkeys(part.corruption for r in records for part in r.parts))
    positions, error_curves = _error_curves(records)
    return {
        "fields": SCALARS,
        "rows": [[getattr(record, name) for name in SCALARS] for record in records],
        "corruptions": corruptions,
        "parts": [
            [[corruptions.index(part.corruption), *part[1:4]] for part in record.parts]
            for record in records
        ],
        "first_images": FIRST_IMAGES,
        "errors_in_first": [[error_in_first(r, n) for n in FIRST_IMAGES] for r in records],
        "positions": positions,
        "error_curves": error_curves,
        "groups": _groups(records),
        "layers": layers,
    }


def _error_curves(records: Sequence[Record]) -> tuple[list[Any], list[Any]]:
    """The distinct lists of images seen, and per record its list and errors to one decimal."""
    places: dict[tuple[int, ...], int] = {}
    curves: list[Any] = []
    for record in records:
        seen = tuple(point[0] for point in record.error_curve)
        place = places.setdefault(seen, len(places))
        curves.append([place, [round(error, 1) for _, error in record.error_curve]])
    return [list(seen) for seen in places], curves


def _label(record: Record) -> str:
    parts = [record.scenario, record.dataset, record.model]
    parts += [f"{record.images} images"] if record.images is not None else []
    parts += [f"order {record.order}"] if record.order != "shuffled" else []
    parts += [f"delta {record.delta}"] if record.delta is not None else []
    parts += [f"severity {record.severity}"] if record.severity != DEFAULT_SEVERITY else []
    return " · ".join(parts)


def _groups(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The groups, the largest first: the page opens with it."""
    places = {record.key: place for place, record in enumerate(records)}
    found: dict[str, list[Record]] = defaultdict(list)
    for record in latest(records):
        found[_label(record)].append(record)
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
        "headline": [text.replace(" %", "\N{NO-BREAK SPACE}%") for text in headline(errors)],
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
    """Means over the seeds; the source model has the same error at every batch size.

    >>> with_source({("source", 4): [40.0], ("tbn", 1): [80.0, 90.0]}, [4, 1])
    {('source', 4): 40.0, ('source', 1): 40.0, ('tbn', 1): 85.0}
    """
    found = {cell: fmean(errors) for cell, errors in cells.items()}
    source = [error for (method, _), error in found.items() if method == "source"]
    return {("source", size): source[0] for size in sizes if source} | found


def table(errors: Errors, methods: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """Per method its errors and their mean; marks: 1 for the best of a column, 2 for the second."""
    rows = [[errors.get((method, size)) for size in sizes] for method in methods]
    for row in rows:
        known = [error for error in row if error is not None]
        row.append(fmean(known) if known and len(known) == len(row) else None)
    columns = [best_two(column) for column in zip(*rows, strict=True)]
    marks = [list(row) for row in zip(*columns, strict=True)]
    return {"methods": list(methods), "sizes": list(sizes), "errors": rows, "marks": marks}


def _paper(example: Record, methods: Sequence[str], sizes: Sequence[int]) -> dict[str, Any] | None:
    """The paper's errors for our methods, at our batch sizes if it has any of them."""
    dataset = example.dataset.removesuffix("-sample")
    errors = paper_errors(dataset, example.scenario)
    shared = [method for method in methods if method in {known for known, _ in errors}]
    if not shared:
        return None
    columns = {n for _, n in errors if n in sizes} or {n for _, n in errors}
    return {"dataset": dataset, **table(errors, shared, sorted(columns, reverse=True))}


def command(few: Sequence[Record]) -> str:
    """The command that measures the group again, without non-default hyperparameters."""
    first, plain = few[0], [record for record in few if not record.hyperparameters] or list(few)
    options: dict[str, Any] = {
        "datasets": first.dataset,
        "models": first.model,
        "scenarios": first.scenario,
        "methods": ",".join(dict.fromkeys(record.method for record in plain)),
        "batch-sizes": _descending({record.batch_size for record in plain}),
        "seeds": _descending({record.seed for record in plain}),
        "images": first.images,
        "orders": first.order if first.order != "shuffled" else None,
        "deltas": first.delta,
        "severities": first.severity if first.severity != DEFAULT_SEVERITY else None,
    }
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value]
    return " ".join(["rtta bench", *words])


def _descending(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers, reverse=True)))


def read_layers(records: Sequence[Record], folder: Path) -> tuple[dict[str, Layers], int]:
    """The traces by record key, and how many exceeded the budget of the page."""
    found: dict[str, Layers] = {}
    left_out, room = 0, BUDGET
    for record in records:
        trace = read_trace(record.key, folder)
        layers = layers_of(trace) if trace else None
        if layers is None:
            continue
        length = len(json.dumps(layers))
        if length > room:
            left_out += 1
        else:
            found[record.key] = layers
            room -= length
    return found, left_out


def layers_of(trace: Trace) -> Layers | None:
    """A trace, thinned and rounded; None without source weights and divergences."""
    points = trace.points[:: -(-len(trace.points) // POINTS) or 1]
    values = {
        "source_weight": _by_layer([point.source_weight for point in points]),
        "divergence": _by_layer([point.divergence for point in points]),
    }
    images = [point.images for point in points]
    layers = {"names": list(trace.layers), "images": images, **values}
    return layers if any(values.values()) else None


def _by_layer(points: Sequence[Sequence[float | None]]) -> list[list[float | None]] | None:
    """(point, layer) to (layer, point), three digits; None if all values are None."""
    rows = [[None if v is None else float(f"{v:.3g}") for v in row] for row in points]
    if all(value is None for row in rows for value in row):
        return None
    return [list(row) for row in zip(*rows, strict=True)]
