"""What is remembered of the moments of all layers: memories, last batches, and what they weigh.

The part of methods/realistic.py that is for all layers at once: before a pass, what of the memories
still counts; after it, the memories with the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from realistic_tta.functional.arrays import Array, as_tensor, at_hand, join
from realistic_tta.functional.changes import RECENT
from realistic_tta.functional.memories import (
    Passed,
    Remembered,
    Weights,
    between,
    forgetting,
    is_whole,
)
from realistic_tta.layers.course import Course
from realistic_tta.layers.remembered_statistics import RememberedStatistics

from .label_memory import LabelMemory
from .realistic_settings import RealisticSettings


class MomentMemory(LabelMemory):
    """Averages over the last images, in the source's units.

    Buffers:
    memories: moments in the source's units, (memory + batch, 2 * all channels), the longest first,
        then each of the last batches, the newest first; for each layer all first moments, then all
        second.
    recent_images: how many images each of the last batches had, (batch, layer).
    spread: squared distance of an image's moments from their mean, (layer,).
    weight, squares: of the images in each memory, (layer, memory).
    spread_weight: of the images that the spread was measured from, (layer,).
    """

    _passed: tuple[Tensor, int, Passed] | None = None
    rate: Tensor
    memories: Tensor
    recent_images: Tensor
    spread: Tensor
    weight: Tensor
    squares: Tensor
    spread_weight: Tensor
    between: Tensor
    layer_of_moment: Tensor

    def __init__(self, network: nn.Module, settings: RealisticSettings) -> None:
        super().__init__(network, settings)
        rate = forgetting(settings.scopes, self.source_mean)  # (memory,)
        self.register_buffer("rate", rate, persistent=False)
        self.register_buffer("between", between(len(rate), rate), persistent=False)
        ends = list(itertools.accumulate(2 * size for size in self.sizes))
        self.cuts = [slice(end - 2 * size, end) for end, size in zip(ends, self.sizes, strict=True)]
        layer = self.layer_of_channel.split(self.sizes)
        both = [moment for each in layer for moment in (each, each)]
        self.register_buffer("layer_of_moment", torch.cat(both), persistent=False)

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
            known = self._passed = self.rate, images, Passed.of(at_hand(self.rate), images)
        return known[2]

    def split(self, rows: Array) -> list[Array]:
        """Moments of all layers, (row, moment), cut into those of each."""
        return [rows[:, cut] for cut in self.cuts]

    def counting(self, kept: Array, older: Array) -> tuple[Weights, Array]:
        """Weights and moments of the memories where only so much of the past counts.

        kept, older: as in `Remembered.thinned`.
        """
        weights, rows = Weights(at_hand(self.weight), at_hand(self.squares)), at_hand(self.memories)
        if is_whole(older):
            return weights, rows[: len(self.rate)]
        remembered = Remembered(weights, at_hand(self.rate), at_hand(self.recent_images))
        left, matrix = remembered.thinned(kept, older)
        layers = zip(matrix, self.split(rows), strict=True)
        return left, join([each @ own for each, own in layers], 1)

    def moments_after(
        self, rules: Sequence[RememberedStatistics], course: Course
    ) -> dict[str, Tensor]:
        """Memories and last batches with this batch, and what they weigh."""
        weighed, batch = course.weighed, _batch_of(rules)  # (1, moment)
        share = weighed.share.T[:, at_hand(self.layer_of_moment)]  # (memory, moment)
        memories = weighed.memories + share * (batch - weighed.memories)
        last = at_hand(self.memories)[len(self.rate) :]
        rows = join((memories, batch, last[:-1]), 0) if len(last) else memories
        images = torch.full_like(self.spread, course.batch)
        found = {
            "memories": rows,
            "weight": weighed.weights.total,
            "squares": weighed.weights.squares,
            "spread_weight": weighed.spread_weight,
        }
        return {
            "recent_images": pushed(self.recent_images, images),
            **{name: as_tensor(value) for name, value in found.items()},
        }

    def only(self, layers: list[int] | None, found: dict[str, Tensor]) -> dict[str, Tensor]:
        """What was found in these layers, and what was known before in others; None for all.

        Of the last batches these did not get the newest: it counts for none of their images.
        """
        if layers is None:
            return found
        there = torch.zeros_like(self.spread, dtype=torch.bool)
        there[layers] = True
        places = {"memories": there[self.layer_of_moment]}
        places |= dict.fromkeys(("weight", "squares"), there[:, None])
        before = {name: self.get_buffer(name) for name in found}
        before["recent_images"] = pushed(self.recent_images, torch.zeros_like(self.spread))
        before["memories"] = _pushed_below(self.memories, len(self.rate))
        return {
            name: torch.where(places.get(name, there), new, before[name])
            for name, new in found.items()
        }


def _pushed_below(rows: Tensor, memories: int) -> Tensor:
    """The memories as they are, and the last batches with one that is left out, of no moments."""
    return torch.cat((rows[:memories], pushed(rows[memories:], torch.zeros_like(rows[0]))))


def _batch_of(rules: Sequence[RememberedStatistics]) -> Array:
    """The batch's mean moments, (1, moment); any in layers that it left out, where none counts."""
    return join(
        [rule.known.memories[:1] if rule.batch is None else rule.batch for rule in rules], 1
    )


def pushed(ring: Tensor, newest: Tensor) -> Tensor:
    """The ring with the newest first and without the oldest; an empty one stays empty."""
    return torch.cat((newest.expand(1, *ring.shape[1:]), ring))[: len(ring)]
