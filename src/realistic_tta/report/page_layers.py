"""What the layers did, for the page's layer view: read from the traces beside the records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from realistic_tta.benchmark.results import Record
from realistic_tta.benchmark.trace_files import Trace, read_trace

Layers = dict[
    str, Any
]  # names (layer,), images (point,), source_weight and divergence (layer, point)
POINTS = 100  # in time; more could not be told apart on a screen
BUDGET = 1_000_000  # characters of all traces together, so that the page stays small


def read_layers(records: Sequence[Record], folder: Path) -> tuple[dict[str, Layers], int]:
    """By record key, and how many had to be left out for the page's size."""
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
    """Thinned and rounded; None if the method has neither source weights nor divergences."""
    points = trace.points[:: -(-len(trace.points) // POINTS) or 1]
    kinds = {
        "source_weight": _by_layer([point.source_weight for point in points]),
        "divergence": _by_layer([point.divergence for point in points]),
    }
    images = [point.images for point in points]
    layers = {"names": list(trace.layers), "images": images, **kinds}
    return layers if any(kinds.values()) else None


def _by_layer(points: Sequence[Sequence[float | None]]) -> list[list[float | None]] | None:
    """(point, layer) to (layer, point), three digits; None if nothing is known."""
    rows = [[None if v is None else float(f"{v:.3g}") for v in row] for row in points]
    if all(value is None for row in rows for value in row):
        return None
    return [list(row) for row in zip(*rows, strict=True)]
