"""What the layers did over a stream: one file a traced run, beside its record.

Written by `rtta bench --traces` (benchmark/traces.py measures), read by report/. A file is some
hundred kB: at most 200 points in time, six digits a number.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from realistic_tta.errors import ResultsError

from .results import read_text, write_whole
from .strict_json import check_fields, is_number, is_whole, parse

Figures = tuple[float | None, ...]  # (layer,)


class TracePoint(NamedTuple):
    """One moment of the stream; None for what the method or the layer does not have.

    images: seen so far. mean: of the traced channel, as the batch was normalised with.
    source_weight, divergence: by layer, as `AdaptedModel.report` gives them.
    """

    images: int
    mean: float | None
    source_weight: Figures
    divergence: Figures


@dataclass(frozen=True)
class Trace:
    """layer, channel: of `mean`; None in a network without BatchNorm. source_mean: from training.

    layers: names of the adapted layers, from the network's input to its output.
    """

    key: str
    layer: str | None
    channel: int | None
    source_mean: float | None
    layers: tuple[str, ...]
    points: tuple[TracePoint, ...]

    def to_json(self) -> str:
        """As it is kept on disk."""
        return json.dumps(dataclasses.asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str, where: str = "trace") -> Self:
        """Read back; anything that is not such a trace is refused."""
        try:
            found = parse(text)
            check_fields(found, {each.name: str(each.type) for each in dataclasses.fields(cls)})
            found["layers"] = _names(found["layers"])
            count = len(found["layers"])
            found["points"] = tuple(_point(count, *point) for point in found["points"])
            return cls(**found)
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{where}: no trace ({error}); remove it and run again") from error


def _names(layers: Any) -> tuple[str, ...]:
    if not isinstance(layers, list) or not all(isinstance(name, str) for name in layers):
        raise ValueError("layers are no list of names")
    return tuple(layers)


def _point(count: int, images: Any, mean: Any, weights: Any, divergences: Any) -> TracePoint:
    """count: of layers. Each has its figure, or None."""
    for figures in ([images], [mean], weights, divergences):
        if not isinstance(figures, list) or not all(v is None or is_number(v) for v in figures):
            raise ValueError(f"a point holds {str(figures)[:40]}; expected numbers")
    if not is_whole(images) or len(weights) != count or len(divergences) != count:
        raise ValueError(f"a point has other figures than one for each of {count} layers")
    return TracePoint(images, mean, tuple(weights), tuple(divergences))


def trace_file(key: str, folder: Path) -> Path:
    """Where the trace of a record is kept, in a folder of results."""
    return folder / "traces" / f"{key}.json"


def write_trace(trace: Trace, folder: Path) -> None:
    """Whole or not at all."""
    write_whole(trace_file(trace.key, folder), trace.to_json().encode())


def read_trace(key: str, folder: Path) -> Trace | None:
    """The trace of a record; None if the run was not traced."""
    path = trace_file(key, folder)
    return Trace.from_json(read_text(path), str(path)) if path.exists() else None
