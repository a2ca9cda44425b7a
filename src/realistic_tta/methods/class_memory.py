"""What is remembered of the predicted classes: how frequent each was, and what it adds.

The part of methods/realistic.py that looks at the network's outputs. It is told when a batch has
been predicted, and says what of the memories is to be put down to classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from realistic_tta.errors import NetworkError
from realistic_tta.normalization.remembered_statistics import (
    RememberedStatistics,
    moments_by_image,
)
from realistic_tta.statistics.class_effects import (
    Effects,
    Runs,
    find_runs,
    in_runs,
    learn,
    to_groups,
    watch,
)
from realistic_tta.statistics.leaning import number
from realistic_tta.statistics.memories import (
    Weights,
    add_images,
    class_concentration,
    class_counts,
    class_shares,
    predicted,
)

from .batch import Batch
from .batch_norm_method import BatchNormMethod
from .outputs import find_logits
from .realistic_settings import RealisticSettings


class ClassMemory(BatchNormMethod):
    """Shares of the predicted classes in each memory, and their effects on the moments.

    Buffers:
    class_shares: of the predicted classes in each memory, (memory, class).
    class_weight, class_squares: of the images in them, (memory,).
    class_moments, class_images, class_runs: as `Effects` has them.
    """

    settings: RealisticSettings
    rate: Tensor
    class_shares: Tensor
    class_weight: Tensor
    class_squares: Tensor
    class_moments: Tensor
    class_images: Tensor
    class_runs: Tensor

    @property
    def effects(self) -> Effects:
        """What has been learnt of the classes."""
        return Effects(self.class_moments, self.class_images, self.class_runs)

    def classes_at_first(self) -> dict[str, Tensor]:
        """Before the first batch: none have been seen."""
        settings, like = self.settings, self.source_mean
        memories = len(settings.scopes)
        groups_of = (settings.classes or 1) if settings.learns_effects else 1
        effects = Effects.none(groups_of, 2 * sum(self.sizes), like)
        return {
            "class_shares": like.new_zeros(memories, settings.classes or 1),
            "class_weight": like.new_zeros(memories),
            "class_squares": like.new_zeros(memories),
            "class_moments": effects.moments,
            "class_images": effects.images,
            "class_runs": effects.runs,
        }

    def find_runs(self, shares: Tensor) -> Runs | None:
        """What classes with these shares have added to the memories; None if not in runs."""
        if not self.settings.learns_effects:
            return None
        certainty = number(in_runs(self.class_runs))
        if not isinstance(certainty, Tensor) and certainty == 0:
            return None
        return find_runs(self.effects, shares, last=-1)

    def seen_classes(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        """The shares of the predicted classes with this batch's; nothing if there are no logits."""
        shares = self._predicted(outputs, batch) if self.settings.class_balance else None
        if shares is None:
            return {}
        before = Weights(self.class_weight, self.class_squares)
        weights, share = add_images(before, self.rate, batch.size)
        after = torch.lerp(self.class_shares, shares.to(self.class_shares), share[:, None])
        apart, chance = class_concentration(after)[-1], 1 / weights.images[-1]
        kept = torch.exp(self.rate[:2][-1] * batch.size)
        return {
            "class_shares": after,
            "class_weight": weights.total,
            "class_squares": weights.squares,
            "class_runs": watch(self.class_runs, apart, chance, kept),
        }

    def learnt_effects(
        self,
        rules: Sequence[RememberedStatistics],
        memories: Tensor,
        seen: dict[str, Tensor],
        outputs: Any,
    ) -> dict[str, Tensor]:
        """What classes add to the moments, with this batch; as before if there are no logits."""
        if not self.settings.learns_effects or not seen:
            return {}
        shares = seen["class_shares"]
        logits = self._logits(outputs, shares.shape[1])
        runs, middle = self.find_runs(shares), min(1, len(shares) - 1)
        centre = memories[middle]
        if runs is not None:
            centre = centre - runs.apart[middle] @ runs.effects
        answers = to_groups(predicted(logits, shares.shape[1]).to(centre), len(self.class_images))
        moments = moments_by_image(rules, len(answers), centre)
        sums = torch.cat((answers.T @ moments, answers.sum(dim=0)[:, None]), dim=1)
        if self.replicas is not None:
            sums = self.replicas.add(sums)
        after = learn(self.effects, sums[:, :-1], sums[:, -1], centre)
        return {"class_moments": after.moments, "class_images": after.images}

    def _predicted(self, outputs: Any, batch: Batch) -> Tensor | None:
        """Shares of the predicted classes, (class,); None for a network that returns no logits."""
        classes = self.class_shares.shape[1]
        logits = self._logits(outputs, classes)
        if self.replicas is None:
            return class_shares(logits, classes) if logits.shape[0] == batch.size else None
        counts = self.replicas.add(class_counts(logits, classes)).to(self.class_shares)
        return counts / batch.size if counts.sum() == batch.size else None

    def _logits(self, outputs: Any, classes: int) -> Tensor:
        """(image, class); of no image for a network that returns none."""
        try:
            logits = find_logits(outputs)
        except NetworkError:
            logits = self.class_shares[:0]
        return logits if logits.shape[1] == classes else self.class_shares[:0]
