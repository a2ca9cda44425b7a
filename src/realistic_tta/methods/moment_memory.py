"""What is remembered of the moments of all layers: memories, last batches, and what they weigh.

The part of methods/realistic.py that is for all layers at once: before a pass, what of the memories
still counts; after it, the memories with the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from realistic_tta.normalization.course import Course
from realistic_tta.normalization.remembered_statistics import RememberedStatistics
from realistic_tta.statistics.memories import Remembered, Weights, between, forgetting, is_whole

from .class_memory import ClassMemory, pushed
from .realistic_settings import RealisticSettings


class MomentMemory(ClassMemory):
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
        layer = self.layer_of_channel.split(self.sizes)
        both = [moment for each in layer for moment in (each, each)]
        self.register_buffer("layer_of_moment", torch.cat(both), persistent=False)

    @property
    def remembered(self) -> Remembered:
        """The weights behind the memories."""
        return Remembered(Weights(self.weight, self.squares), self.rate, self.recent_images)

    def split(self, rows: Tensor) -> Sequence[Tensor]:
        """Moments of all layers, (row, moment), cut into those of each."""
        return torch.split(rows, [2 * size for size in self.sizes], dim=1)

    def counting(self, rows: Tensor, kept: Tensor, older: Tensor) -> tuple[Weights, Tensor]:
        """Weights and moments of the memories where only so much of the past counts.

        rows: memories and, below them, the last batches, (row, moment). kept, older: as in
        `Remembered.thinned`.
        """
        if is_whole(older):
            return Weights(self.weight, self.squares), rows[: len(self.rate)]
        left, matrix = self.remembered.thinned(kept, older)
        layers = zip(matrix.unbind(), self.split(rows), strict=True)
        return left, torch.cat([torch.mm(each, own) for each, own in layers], dim=1)

    def moments_after(
        self, rules: Sequence[RememberedStatistics], course: Course
    ) -> dict[str, Tensor]:
        """Memories and last batches with this batch, and what they weigh."""
        weighed, batch = course.weighed, _batch_of(rules)  # (1, moment)
        share = weighed.share.T.index_select(1, self.layer_of_moment)  # (memory, moment)
        memories = torch.lerp(weighed.memories, batch, share)
        images = torch.full_like(self.spread, course.batch)
        return {
            "memories": torch.cat((memories, pushed(self.memories[len(self.rate) :], batch[0]))),
            "recent_images": pushed(self.recent_images, images),
            "weight": weighed.weights.total,
            "squares": weighed.weights.squares,
            "spread_weight": weighed.spread_weight,
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


def _batch_of(rules: Sequence[RememberedStatistics]) -> Tensor:
    """The batch's mean moments, (1, moment); any in layers that it left out, where none counts."""
    return torch.cat(
        [rule.known.memories[:1] if rule.batch is None else rule.batch for rule in rules], dim=1
    )
