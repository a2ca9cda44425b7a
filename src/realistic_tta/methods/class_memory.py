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

    def find_runs(self) -> Runs | None:
        """What classes have added to the memories; None where labels do not come in runs."""
        if not self.settings.learns_effects:
            return None
        certainty = number(in_runs(self.class_runs))
        if not isinstance(certainty, Tensor) and certainty == 0:
            return None
        return find_runs(self.effects, self.class_shares)

    def answers(self, outputs: Any) -> Tensor:
        """1 where a class is the one predicted, (image, class); no row if there are no logits."""
        classes = self.class_shares.shape[1]
        try:
            logits = find_logits(outputs)
        except NetworkError:
            logits = self.class_shares[:0]
        logits = logits if logits.shape[1] == classes else self.class_shares[:0]
        return predicted(logits, classes).to(self.class_shares)

    def seen_classes(self, answers: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The shares of the predicted classes with this batch's; nothing without answers."""
        if not self.settings.class_balance:
            return {}
        counts, complete = answers.sum(dim=0), len(answers) == batch.size
        if self.replicas is not None:
            counts = self.replicas.add(counts)
            complete = bool(counts.sum() == batch.size)
        if not complete:
            return {}
        before = Weights(self.class_weight, self.class_squares)
        weights, share = add_images(before, self.rate, batch.size)
        shares = torch.lerp(self.class_shares, counts / batch.size, share[:, None])
        apart, chance = class_concentration(shares)[-1], 1 / weights.images[-1]
        kept = torch.exp(self.rate[:2][-1] * batch.size)
        return {
            "class_shares": shares,
            "class_weight": weights.total,
            "class_squares": weights.squares,
            "class_runs": watch(self.class_runs, apart, chance, kept),
        }

    def learnt_effects(
        self,
        rules: Sequence[RememberedStatistics],
        memories: Tensor,
        answers: Tensor,
        shares: Tensor | None,
    ) -> dict[str, Tensor]:
        """What classes add to the moments, with this batch.

        memories: with this batch. shares: of the classes in them, where labels come in runs.
        """
        middle = min(1, len(self.class_shares) - 1)
        centre = memories[middle]
        if shares is not None:
            runs = find_runs(self.effects, shares)
            centre = centre - runs.apart[middle] @ runs.effects
        answers = to_groups(answers, len(self.class_images))
        sums = answers.T @ moments_by_image(rules, len(answers), centre)
        images = answers.sum(dim=0)
        if self.replicas is not None:
            everyone = self.replicas.add(torch.cat((sums, images[:, None]), dim=1))  # one exchange
            sums, images = everyone[:, :-1], everyone[:, -1]
        after = learn(self.effects, sums, images, centre)
        return {"class_moments": after.moments, "class_images": after.images}
