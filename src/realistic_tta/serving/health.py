"""Figures to monitor an adapted model by. Made by `ServedModel.health`; exporters are beside."""

from __future__ import annotations

from dataclasses import dataclass

from realistic_tta.core.report import LayerReport


@dataclass(frozen=True)
class Health:
    """The figures to monitor an adapted model by.

    Counts continue over a reset and a restart from a file; recent predictions do not.

    Attributes:
        method: the name of the method.
        batches: the number of batches predicted.
        images: the number of images predicted.
        resets: how often the state was reset.
        recent: the number of recent predictions that entropy and histogram are computed from.
        entropy: their mean entropy in nats; None if there are none, or the output has no logits.
        histogram: the number of them per class.
        layers: divergence from the source in nats, and source weight, per adapted layer.
        skipped: samples left out as non-finite (nonfinite="skip").
        rollbacks: how often the guard returned the method to its last good state.
        source_answers: images that the guard answered with the source.

    >>> import torch
    >>> from torch import nn
    >>> from realistic_tta import adapt
    >>> adapted = adapt(nn.BatchNorm1d(3))
    >>> logits = adapted(torch.rand(5, 3))
    >>> adapted.health().images
    5
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
