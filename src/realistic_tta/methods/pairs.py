"""What two networks said of the same images, the last of them. Used by guard.py; judge.py judges.

Kept on the CPU, where they are judged: the network may move to another device between two batches.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .judge import advantage, information
from .outputs import widen


class Pairs:
    """batches: logits of the adapted network and of the source, (image, class), oldest first."""

    def __init__(self, batches: Iterable[tuple[Tensor, Tensor]] = ()) -> None:
        self.batches = list(batches)
        self._told: float | None = None  # asked for with every batch, changed by one image in eight

    def __len__(self) -> int:
        return sum(len(adapted) for adapted, _ in self.batches)

    def add(self, adapted: Tensor, source: Tensor, window: int) -> None:
        """Takes copies; whole batches are forgotten as soon as the rest fills a window."""
        self._told = None
        self.batches.append((copied(adapted), copied(source)))
        while len(self) - len(self.batches[0][0]) >= window:
            del self.batches[0]

    def joined(self) -> tuple[Tensor, Tensor]:
        """All of the adapted network's, and all of the source's."""
        adapted, source = zip(*self.batches, strict=True)
        return torch.cat(adapted), torch.cat(source)

    def advantage(self) -> float:
        """Of the adapted network over the source, in nats."""
        return advantage(*self.joined())

    def information(self) -> float:
        """In what the adapted network said, in nats."""
        if self._told is None:
            self._told = information(self.joined()[0])
        return self._told


def copied(logits: Tensor) -> Tensor:
    """On the CPU; the caller may write into the outputs afterwards, in any mode."""
    with torch.inference_mode(mode=False):
        return widen(logits.detach()).to("cpu", copy=True)
