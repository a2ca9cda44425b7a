"""Writes a Health to TensorBoard; needs the package tensorboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from realistic_tta.errors import OptionError

from .health import Health


class TensorBoard:
    """A hook for `adapted.register_health_hook` that writes each Health at its number of batches.

    folder: where the event file is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.writer = _writer(folder)

    def __call__(self, health: Health) -> None:
        """Writes it."""
        for tag, value in scalars(health).items():
            self.writer.add_scalar(tag, value, health.batches)

    def close(self) -> None:
        """Flushes and closes the file."""
        self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def scalars(health: Health) -> dict[str, float]:
    """The values by TensorBoard's tags."""
    found: dict[str, float | None] = {
        "images": health.images,
        "skipped": health.skipped,
        "resets": health.resets,
        "rollbacks": health.rollbacks,
        "source_answers": health.source_answers,
        "entropy": health.entropy,
    }
    found |= {f"class/{place}": count for place, count in enumerate(health.histogram)}
    for layer in health.layers:
        found[f"divergence/{layer.name or 'root'}"] = layer.divergence
        found[f"source_weight/{layer.name or 'root'}"] = layer.source_weight
    return {tag: float(value) for tag, value in found.items() if value is not None}


def _writer(folder: str | Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra of torch's
    except ImportError as error:
        raise OptionError(
            f"torch.utils.tensorboard cannot be imported ({error}); pip install tensorboard"
        ) from error
    return SummaryWriter(str(folder))
