"""A summary of how a model is adapted, layer by layer. Made by `AdaptedModel.report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from realistic_tta.layers.replacement import is_batch_norm, other_normalizations


@dataclass(frozen=True)
class LayerReport:
    """One adapted BatchNorm layer.

    Attributes:
        name: the name of the module in the model.
        layer_type: the name of its class.
        channels: the number of its channels.
        divergence: of the stream's statistics from the source's, in nats. None before a batch has
            passed through the layer.
        source_weight: the weight of the source in the mix, from 0 to 1; None likewise.

    >>> from realistic_tta import adapt
    >>> [layer.layer_type for layer in adapt(nn.BatchNorm2d(3)).report().layers]
    ['BatchNorm2d']
    """

    name: str
    layer_type: str
    channels: int
    divergence: float | None = None
    source_weight: float | None = None


@dataclass(frozen=True)
class SkippedLayer:
    """A normalization layer that is not adapted.

    Attributes:
        name: the name of the module in the model.
        layer_type: the name of its class.
        reason: why it is skipped.

    >>> from realistic_tta import adapt
    >>> model = nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4))
    >>> [layer.layer_type for layer in adapt(model).report().skipped_layers]
    ['GroupNorm']
    """

    name: str
    layer_type: str
    reason: str


@dataclass(frozen=True)
class Report:
    """The layers of an adapted model and its distance from the source; it prints as a table.

    Attributes:
        method: the name of the method.
        batches: the number of batches since the last reset.
        layers: the layers that are adapted.
        skipped_layers: the normalization layers that are not.
        trained: names of the parameters that the method trains.
        images: the number of images since the last reset; None if the method does not count them.
        distance: how far the means of the stream are from the source's, in source standard
            deviations, as the root mean square over all channels. None before the second image, and
            for methods without an estimate of chance.
        chance: the distance that clean images would show by chance, of at most ten independent
            images: clean images also differ a little from those of the training.
        correlation_time: about how many images of the stream tell as much as one independent image:
            1 in random order, 2 or more if labels come in runs.

    >>> from realistic_tta import adapt
    >>> adapt(nn.BatchNorm2d(3)).report().layers[0].channels
    3
    """

    method: str
    batches: int
    layers: tuple[LayerReport, ...]
    skipped_layers: tuple[SkippedLayer, ...]
    trained: tuple[str, ...] = ()
    images: int | None = None
    distance: float | None = None
    chance: float | None = None
    correlation_time: float | None = None

    def __str__(self) -> str:
        seen = f"{self.batches} batch{'' if self.batches == 1 else 'es'} seen"
        lines = [f"{self.method}: {len(self.layers)} BatchNorm layers adapted, {seen}"]
        if self.distance is not None:
            lines.append(
                f"after {self.images} images, the stream is {self.distance:.2f} source standard "
                f"deviations from the source; clean images would be {self.chance:.2f} by chance"
            )
        if self.correlation_time is not None and self.correlation_time > 2:
            lines.append(
                f"about {self.correlation_time:.0f} images tell as much as one independent image: "
                "labels seem to come in runs"
            )
        if self.layers:
            rows = [("layer", "type", "channels", "divergence", "source weight")]
            rows += [
                (
                    layer.name or "(root)",
                    layer.layer_type,
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
        if self.skipped_layers:
            lines.append(f"skipped: {len(self.skipped_layers)}")
            lines += _columns(
                [
                    (each.name or "(root)", each.layer_type, each.reason)
                    for each in self.skipped_layers
                ]
            )
        return "\n".join(lines)


def untouched_report(method: str, batches: int, model: nn.Module, reason: str) -> Report:
    """The report of a method that leaves the model as trained: every layer is skipped."""
    named = model.named_modules()
    skipped = [(name, each, reason) for name, each in named if is_batch_norm(each)]
    skipped += list(other_normalizations(model))
    layers = (SkippedLayer(name, type(each).__name__, why) for name, each, why in skipped)
    return Report(method, batches, (), tuple(layers))


def _by_layer(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Parameter names as one row per layer: the layer's name and its parameters."""
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
