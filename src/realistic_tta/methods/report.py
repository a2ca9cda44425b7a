"""What a method did to a network, layer by layer. Made by `AdaptedModel.report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LayerReport:
    """One BatchNorm layer that was replaced; figures are None until a batch has reached it."""

    name: str
    kind: str
    channels: int
    divergence: float | None = None
    source_weight: float | None = None


@dataclass(frozen=True)
class SkippedLayer:
    """A layer that normalises and was not replaced."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Report:
    """Prints as a table; the same facts are in its fields."""

    method: str
    batches: int
    layers: tuple[LayerReport, ...]
    left_alone: tuple[SkippedLayer, ...]
    trained: tuple[str, ...] = ()  # names of the parameters that the method trains

    def __str__(self) -> str:
        seen = f"{self.batches} batch{'' if self.batches == 1 else 'es'} seen"
        lines = [f"{self.method}: {len(self.layers)} BatchNorm layers adapted, {seen}"]
        if self.layers:
            rows = [("layer", "kind", "channels", "divergence", "source weight")]
            rows += [
                (
                    layer.name or "(root)",
                    layer.kind,
                    str(layer.channels),
                    _figure(layer.divergence),
                    _figure(layer.source_weight),
                )
                for layer in self.layers
            ]
            lines += _columns(rows)
        if self.trained:
            lines.append(f"trained: {len(self.trained)} parameters")
            lines += _columns(_by_layer(self.trained))
        if self.left_alone:
            lines.append(f"left alone: {len(self.left_alone)}")
            lines += _columns(
                [(left.name or "(root)", left.kind, left.reason) for left in self.left_alone]
            )
        return "\n".join(lines)


def _by_layer(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Names of parameters as one row a layer: its name, and what of it is meant."""
    rows: dict[str, list[str]] = {}
    for name in names:
        layer, _, own = name.rpartition(".")
        rows.setdefault(layer or "(root)", []).append(own)
    return [(layer, ", ".join(own)) for layer, own in rows.items()]


def _figure(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
