"""How an adapted network is doing: counts, its recent predictions, its layers.

`AdaptedModel.health` makes a Health; realistic_tta/monitoring exports it. While batches come,
only their logits are put aside; entropy and histogram are worked out when somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .entropy import entropy
from .outputs import tensors_in, widen
from .report import LayerReport
from .ring import NewRows

RECENT = 512  # predictions that are kept; 2 MB of logits for a network of 1,000 classes


@dataclass(frozen=True)
class Health:
    """Counts go on over a reset and a restart from a file; what is recent does not.

    batches, images: predicted. excluded: images left out of the adaptation as faulty.
    resets: how often everything learnt was forgotten.
    recent: how many of the last predictions the next two are made from.
    entropy: their mean, in nats; None if there is none, or the output holds no logits.
    histogram: how many of them went to each class.
    layers: divergence from the source, in nats, and source weight of each replaced layer.
    falls: how often the guard took the method back. by_source: images it let the source answer.
    """

    method: str
    batches: int
    images: int
    excluded: int
    resets: int
    recent: int
    entropy: float | None
    histogram: tuple[int, ...]
    layers: tuple[LayerReport, ...]
    falls: int = 0
    by_source: int = 0


@dataclass
class Counts:
    """What is counted, by the names in Health."""

    batches: int = 0
    images: int = 0
    excluded: int = 0
    resets: int = 0
    falls: int = 0
    by_source: int = 0


class RecentPredictions:
    """The logits of the last images, in a ring, (RECENT, class)."""

    def __init__(self) -> None:
        self.ring: Tensor | None = None
        self.seen = 0

    def take(self, outputs: Any, kept: Tensor | None = None) -> None:
        """Puts the logits of a batch aside, or of those kept; an output without any is let pass."""
        logits = logits_in(outputs, kept)
        if logits is None or not len(logits):
            return
        if self.ring is None or self.ring.shape[1] != logits.shape[1]:
            with torch.inference_mode(mode=False):  # written to in either mode later
                self.ring = logits.new_empty(RECENT, logits.shape[1])
            self.seen = 0
        start = self.seen % RECENT
        if start + len(logits) <= RECENT:  # nearly always, and two operations instead of six
            self.ring[start : start + len(logits)].copy_(logits)
        else:
            for places, rows in NewRows(self.ring, self.seen, logits).copies_into(self.ring):
                places.copy_(rows)
        self.seen += len(logits)

    def forget(self) -> None:
        """As if no image had come."""
        self.seen = 0

    def __len__(self) -> int:
        return min(self.seen, RECENT)

    def entropy(self) -> float | None:
        """The mean over the images, in nats."""
        if self.ring is None or not self.seen:
            return None
        return float(entropy(widen(self._kept(self.ring))).mean())

    def histogram(self) -> tuple[int, ...]:
        """How many of the images went to each class."""
        if self.ring is None:
            return ()
        labels = self._kept(self.ring).argmax(dim=1)
        return tuple(torch.bincount(labels, minlength=self.ring.shape[1]).tolist())

    def _kept(self, ring: Tensor) -> Tensor:
        return ring[: len(self)]


def logits_in(outputs: Any, kept: Tensor | None = None) -> Tensor | None:
    """As `find_logits`, None where there are none; of some of the samples, if not all are kept."""
    for tensor in tensors_in(outputs):
        if tensor.ndim == 2 and tensor.is_floating_point():
            by_sample = kept is not None and len(kept) == len(tensor)
            return tensor[kept.to(tensor.device)] if by_sample and kept is not None else tensor
    return None
