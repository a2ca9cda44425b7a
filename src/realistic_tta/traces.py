"""What the layers did over a stream: one file a traced run, beside its record.

Written by `rtta bench --traces` (benchmark/traces.py measures), read by report/. A file is some
hundred kB: at most 200 points in time, six digits a number.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from .errors import ResultsError
from .results import write_whole

Figures = tuple[float | None, ...]  # (layer,)


class TracePoint(NamedTuple):
    """One moment of the stream; None for what the method or the layer does not have.

    images: seen so far. mean: of the traced channel, as the batch was normalised with.
    source_weight, divergence: by layer, as `AdaptedNetwork.report` gives them.
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
            found = json.loads(text)
            found["layers"] = tuple(found["layers"])
            found["points"] = tuple(_point(*point) for point in found["points"])
            return cls(**found)
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{where}: no trace ({error}); remove it and run again") from error


def _point(images: int, mean: float | None, *by_layer: list[float | None]) -> TracePoint:
    weights, divergences = (tuple(each) for each in by_layer)
    return TracePoint(images, mean, weights, divergences)


def trace_file(key: str, folder: Path) -> Path:
    """Where the trace of a record is kept, in a folder of results."""
    return folder / "traces" / f"{key}.json"


def write_trace(trace: Trace, folder: Path) -> None:
    """Whole or not at all."""
    write_whole(trace_file(trace.key, folder), trace.to_json().encode())


def read_trace(key: str, folder: Path) -> Trace | None:
    """The trace of a record; None if the run was not traced."""
    path = trace_file(key, folder)
    return Trace.from_json(path.read_text(), str(path)) if path.exists() else None
