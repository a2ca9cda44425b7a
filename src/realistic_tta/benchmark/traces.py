"""Per-layer traces of a run: `rtta bench --traces` writes one file per record.

A point is taken with every point of the error curve, from `AdaptedModel.report`. Points are kept in
the metrics, so they are saved in checkpoints. A file has at most 200 points.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from realistic_tta.errors import ResultsError

from .results import read_text, write_file
from .strict_json import check_fields, is_integer, is_number, parse

Values = tuple[float | None, ...]  # (layer,)


class TracePoint(NamedTuple):
    """One moment of the stream. images: seen so far. The others: per layer, as in `report`."""

    images: int
    source_weight: Values
    divergence: Values


@dataclass(frozen=True)
class Trace:
    """layers: names of the adapted layers, from the model's input to its output."""

    key: str
    layers: tuple[str, ...]
    points: tuple[TracePoint, ...]

    def to_json(self) -> str:
        """The content of the file."""
        return json.dumps(dataclasses.asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str, where: str = "trace") -> Self:
        """Reads and validates a trace."""
        try:
            found = parse(text)
            check_fields(found, {each.name: str(each.type) for each in dataclasses.fields(cls)})
            layers = found["layers"]
            if not isinstance(layers, list) or not all(isinstance(name, str) for name in layers):
                raise ValueError("layers is not a list of names")  # noqa: TRY301
            found["layers"] = tuple(layers)
            found["points"] = tuple(_point(len(layers), *point) for point in found["points"])
            return cls(**found)
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{where} is not a trace ({error}); delete it and rerun") from error


def _point(count: int, images: Any, weights: Any, divergences: Any) -> TracePoint:
    for values in (weights, divergences):
        if not isinstance(values, list) or not all(v is None or is_number(v) for v in values):
            raise ValueError(f"a point holds {str(values)[:40]}; expected numbers")
        if len(values) != count:
            raise ValueError(f"a point has {len(values)} values for {count} layers")
    if not is_integer(images):
        raise ValueError(f"a point is at {str(images)[:40]}; expected a number of images")
    return TracePoint(images, tuple(weights), tuple(divergences))


def rounded(number: float | None) -> float | None:
    """Six significant digits; None for values that JSON cannot hold."""
    return float(f"{number:.6g}") if number is not None and math.isfinite(number) else None


def trace_file(key: str, folder: Path) -> Path:
    """The path of a record's trace in a folder of results."""
    return folder / "traces" / f"{key}.json"


def write_trace(trace: Trace, folder: Path) -> None:
    """Writes the trace atomically."""
    write_file(trace_file(trace.key, folder), trace.to_json().encode())


def read_trace(key: str, folder: Path) -> Trace | None:
    """The trace of a record; None if the run was not traced."""
    path = trace_file(key, folder)
    return Trace.from_json(read_text(path), str(path)) if path.exists() else None
