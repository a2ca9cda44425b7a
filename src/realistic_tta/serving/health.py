"""Figures to monitor an adapted model by. Made by `ServedModel.health`; exporters are beside."""

from __future__ import annotations

from dataclasses import dataclass

from realistic_tta.core.report import LayerReport


@dataclass(frozen=True)
class Health:
    """Counts continue over a reset and a restart from a file; recent predictions do not.

    batches, images: predicted. resets: how often the state was reset.
    recent: the number of recent predictions that entropy and histogram are computed from.
    entropy: their mean entropy in nats; None if there are none, or the output has no logits.
    histogram: the number of them per class.
    layers: divergence from the source in nats, and source weight, per adapted layer.
    skipped: samples left out as non-finite (nonfinite="skip").
    rollbacks: how often the guard returned the method to its last good state.
    source_answers: images that the guard answered with the source.
    """

    method: str
    batches: int
    images: int
    resets: int
    recent: int
    entropy: float | None
    histogram: tuple[int, ...]
    layers: tuple[LayerReport, ...]
    skipped: int = 0
    rollbacks: int = 0
    source_answers: int = 0
