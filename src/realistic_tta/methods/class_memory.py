"""What is remembered of the predicted classes: how frequent each was.

The part of methods/realistic.py that looks at the network's outputs. It is told when a batch has
been predicted, and says how many independent images a memory is worth.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from realistic_tta.statistics.changes import RECENT, Seen
from realistic_tta.statistics.class_shares import (
    class_concentration,
    concentration,
    in_runs,
    predicted,
    watch,
)
from realistic_tta.statistics.leaning import Number, at_most
from realistic_tta.statistics.memories import Passed, Remembered, Weights, is_whole

from .batch import Batch
from .label_memory import LabelMemory


class ClassMemory(LabelMemory):
    """Shares of the predicted classes in each memory.

    Buffers:
    class_shares: of the predicted classes in each memory, and in each of the last batches, the
        newest first, (memory + batch, class).
    class_weight, class_squares: of the images in the memories, (memory,).
    class_recent: how many images of each of the last batches were predicted, (batch,).
    class_runs: as `in_runs` has them.
    """

    _passed: tuple[Tensor, int, Passed] | None = None
    rate: Tensor
    class_shares: Tensor
    class_weight: Tensor
    class_squares: Tensor
    class_recent: Tensor
    class_runs: Tensor

    @property
    def last_batches(self) -> int:
        """How many of the last batches are remembered one by one."""
        return RECENT if self.settings.changes else 0

    def passed(self, images: int) -> Passed:
        """What so many images make of the weights in each memory; the last is kept at hand."""
        if torch.compiler.is_compiling():
            return Passed.of(self.rate, images)
        known = self._passed
        if known is None or known[0] is not self.rate or known[1] != images:
            known = self._passed = self.rate, images, Passed.of(self.rate, images)
        return known[2]

    @property
    def remembered_classes(self) -> Remembered:
        """The weights behind the shares of the classes, as of a single layer."""
        weights = Weights(self.class_weight[None], self.class_squares[None])
        return Remembered(weights, self.rate, self.class_recent[:, None])

    def classes_at_first(self) -> dict[str, Tensor]:
        """Before the first batch: none have been seen."""
        settings, like = self.settings, self.source_mean
        memories = len(settings.scopes)
        return {
            "class_shares": like.new_zeros(memories + self.last_batches, settings.classes or 1),
            "class_weight": like.new_zeros(memories),
            "class_squares": like.new_zeros(memories),
            "class_recent": like.new_zeros(self.last_batches),
            "class_runs": like.new_zeros(2),
        }

    def doubt_of_changes(self) -> Number:
        """How far what looks like a change may be a run of one class, 0 to 1."""
        return at_most(in_runs(self.class_runs) / _RUNS, 1.0)

    def class_concentration(self, seen: Seen) -> Tensor:
        """How far the classes in each memory are from the usual ones, (memory,)."""
        weights = Weights(self.class_weight, self.class_squares)
        shares = self.class_shares[: len(self.class_weight)]
        now = shares
        if not is_whole(seen.older):
            _, now = self._counting_classes(seen.recent, seen.older)
        return concentration(now, shares, weights)

    def _counting_classes(self, kept: Tensor, older: Tensor) -> tuple[Weights, Tensor]:
        """Weights and shares of the classes in the memories where only so much of the past counts.

        kept, older: as in `Remembered.thinned`.
        """
        if is_whole(older):
            weights = Weights(self.class_weight, self.class_squares)
            return weights, self.class_shares[: len(self.class_weight)]
        (total, squares), matrix = self.remembered_classes.thinned(kept, older)
        return Weights(total[0], squares[0]), matrix[0] @ self.class_shares

    def answers(self, outputs: Any) -> Tensor:
        """1 where a class is the one predicted, (image, class); no row if there are no logits."""
        logits = self.logits(outputs)
        of_classes = self.class_shares[:0] if logits is None else logits
        return predicted(of_classes, self.class_shares.shape[1]).to(self.class_shares)

    def seen_classes(self, answers: Tensor, batch: Batch, joined: Tensor) -> dict[str, Tensor]:
        """The shares of the predicted classes with this batch's; nothing without answers.

        joined: as in `Seen`.
        """
        if not self.settings.class_balance:
            return {}
        counts, complete = answers.sum(dim=0), len(answers) == batch.size
        if self.replicas is not None:
            counts = self.replicas.add(counts)
            complete = bool(counts.sum() == batch.size)
        if not complete:
            return {}
        passed, now = self.passed(batch.size), counts / batch.size
        before, shares = self._counting_classes(torch.ones_like(self.class_recent), joined)
        weights, part = before.after(passed)
        shares = torch.lerp(shares, now, part[:, None])
        apart, chance = class_concentration(shares[-1], shares[0]), 1 / weights.images[-1]
        last = pushed(self.class_shares[len(shares) :], now)
        return {
            "class_shares": torch.cat((shares, last)),
            "class_weight": weights.total,
            "class_squares": weights.squares,
            "class_recent": pushed(
                self.class_recent, torch.full_like(weights.total[0], batch.size)
            ),
            "class_runs": watch(self.class_runs, apart, chance, passed.kept[:2][-1]),
        }


_RUNS = 0.3  # labels that come in runs so far leave no change to be believed


def pushed(ring: Tensor, newest: Tensor) -> Tensor:
    """The ring with the newest first and without the oldest; an empty one stays empty."""
    return torch.cat((newest.expand(1, *ring.shape[1:]), ring))[: len(ring)]
