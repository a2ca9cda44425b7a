"""The library's own method: memories of several lengths and the source, each as far as it is sure.

It goes on from the paper's: one pass, the same at every batch size, from the first image on, where
labels come in runs, and where nothing has shifted. docs/beyond.md says why each piece is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from realistic_tta.normalization.remembered_statistics import (
    BatchVariances,
    Known,
    RememberedStatistics,
    Shares,
    TrustedStatistics,
    in_full,
    is_cast,
)
from realistic_tta.statistics.channel_statistics import ChannelStatistics
from realistic_tta.statistics.class_effects import Directions, Runs, directions
from realistic_tta.statistics.image_moments import Units, is_far
from realistic_tta.statistics.leaning import numbers, table, together
from realistic_tta.statistics.memories import (
    Weights,
    add_images,
    forgetting,
    mixing,
    steady,
    uncertainty,
    with_whole_batch,
)
from realistic_tta.statistics.rectification import VARIANCE_FLOOR

from .batch import Batch
from .batch_norm_method import reached
from .class_memory import ClassMemory
from .realistic_settings import RealisticSettings

SPREAD_START = 0.1  # of a moment, in the source's units, until two images have been seen


class Realistic(ClassMemory):
    """Statistics from memories of several lengths and the source, in one pass.

    Buffers besides those that every such method has:
    memories: moments in the source's units, (memory + 1, 2 * all channels), the longest first; for
        each layer all first moments, then all second. The last row is the last batch.
    spread: squared distance of an image's moments from their mean, (layer,).
    weight, squares: of the images in each memory, (layer, memory).
    spread_weight: of the images that the spread was measured from, (layer,).
    class_...: what is remembered of the predicted classes (class_memory.py).
    """

    name = "realistic"
    compiles = True
    takes_replicas = True
    shares_trust = True
    settings_type = RealisticSettings
    settings: RealisticSettings
    memories: Tensor
    spread: Tensor
    weight: Tensor
    squares: Tensor
    spread_weight: Tensor
    rate: Tensor
    steps: Tensor
    layer_of_moment: Tensor

    def __init__(self, network: nn.Module, settings: RealisticSettings) -> None:
        super().__init__(network, settings)
        rate = forgetting(settings.scopes, self.source_mean)  # (memory,)
        rows = torch.eye(len(rate) + 1, dtype=rate.dtype, device=rate.device)
        self.register_buffer("rate", rate, persistent=False)
        self.register_buffer("steps", rows - rows.roll(1, 0).tril(-1), persistent=False)
        self._far = [is_far(each) for each in self.by_layer(self.source)]
        self._units: tuple[Tensor, list[Units]] | None = None
        layer_of_moment = self.layer_of_channel.repeat_interleave(2)
        self.register_buffer("layer_of_moment", layer_of_moment, persistent=False)
        for name, value in self._start().items():
            self.register_buffer(name, value)

    @property
    def used(self) -> ChannelStatistics:
        """Statistics that the last batch was normalised with: the source is in them already."""
        return self.target

    def start(self) -> ChannelStatistics:
        """The source's."""
        return self.source

    def predict(self, batch: Batch) -> Any:
        """Weigh the batch's images; measure and predict in one pass; remember."""
        with in_full(self.rate):
            weights, share = add_images(Weights(self.weight, self.squares), self.rate, batch.size)
            spread_weight, spread_share = self._spread_weight(weights.images[:, -1], batch)
            runs = self.find_runs()
            rules = self._rules(self._known(runs, batch), weights, share, spread_share)
        if is_cast(self.rate):
            for rule in rules:
                rule.cast = True
        outputs = self.run_with(batch, rules)
        with in_full(self.rate):
            noted = self._noted(rules, weights, spread_weight)
            memories = self._with_batch(rules, share)
            answers = self.answers(outputs)
            seen = self.seen_classes(answers, batch)
            if seen and self.settings.learns_effects:
                shares = None if runs is None else seen["class_shares"]
                noted |= self.learnt_effects(rules, memories, answers, shares)
        self.remember(**noted, **seen, memories=memories)
        return outputs

    def reset(self) -> None:
        """Forgets everything seen, in every memory."""
        super().reset()
        for name, value in self._start().items():
            self.get_buffer(name).copy_(value)

    def _start(self) -> dict[str, Tensor]:
        """All memories before the first batch: at the source, and empty for a warm start."""
        scopes, layers = self.settings.scopes, len(self.layers)
        empty = self.source_mean.new_zeros(len(scopes))
        weights = Weights(empty, empty) if self.settings.warm_start else steady(self.rate)
        return {
            "memories": empty.new_zeros(len(scopes) + 1, 2 * sum(self.sizes)),
            "spread": 2 * SPREAD_START * self.channels.to(empty.dtype),
            "weight": weights.total.repeat(layers, 1),
            "squares": weights.squares.repeat(layers, 1),
            "spread_weight": empty.new_zeros(layers),
            **self.classes_at_first(),
        }

    def _rules(
        self, known: Sequence[Known], weights: Weights, share: Tensor, spread_share: Tensor
    ) -> list[RememberedStatistics]:
        """One a layer."""
        settings = self.settings
        least = settings.source_share if settings.lean_on_source else None
        images = weights.images  # (layer, memory)
        correction = images[:, -1] / (images[:, -1] - 1).clamp_min(0.5)
        doubtful = self._doubtful(images)
        shares = zip(
            torch.matmul(self.steps, mixing(share)).unbind(),
            numbers(spread_share),
            numbers(correction),
            table(doubtful),
            strict=True,
        )
        return [
            self._rule(place, layer, Shares(*each, tolerance=settings.tolerance, least=least))
            for place, (layer, each) in enumerate(zip(known, shares, strict=True))
        ]

    def _rule(self, place: int, known: Known, shares: Shares) -> RememberedStatistics:  # noqa: ARG002 - for methods/domains.py
        """Of the layer at this place."""
        if self.settings.robust:
            return TrustedStatistics(known, shares)
        kind = RememberedStatistics if self.settings.total_variance else BatchVariances
        return kind(known, shares)

    def _known(self, runs: Runs | None, batch: Batch) -> list[Known]:
        """What is known of each layer; without effects of classes where labels come in runs."""
        sizes = [2 * size for size in self.sizes]
        memories = self.memories[:-1]
        classes: Sequence[Directions | None] = [None] * len(sizes)
        if runs is not None:
            memories = memories - runs.apart @ runs.effects
            classes = directions(runs, self.spread, sizes, batch.size)
        spread = numbers(self.spread)
        each = zip(self._units_by_layer(), memories.split(sizes, 1), spread, classes, strict=True)
        return [Known(*known) for known in each]

    def _units_by_layer(self) -> list[Units]:
        """Made once, and again where the network was moved."""
        if self._units is not None and self._units[0] is self.source_mean:
            return self._units[1]
        sources = zip(self.by_layer(self.source), self._far, strict=True)
        units = [Units.of(each, VARIANCE_FLOOR, is_far=far) for each, far in sources]
        if not torch.compiler.is_compiling():
            self._units = self.source_mean, units
        return units

    def _doubtful(self, images: Tensor) -> Tensor:
        """What of each memory chance may explain, as a part of the spread, (layer, memory).

        Not what a batch of the training had by chance: the network has been trained with that.
        Classes are those of the predictions before this batch. images: (layer, memory).
        """
        found = 1 / images
        if self.settings.class_balance:
            found = uncertainty(images, self.class_shares, self.class_weight)
        return (self.settings.noise * found - 1 / self.settings.source_batch_size).clamp_min(0)

    def _spread_weight(self, images: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Weight of the images behind the spread, and this batch's share; one image has none."""
        weights = Weights(self.spread_weight, self.spread_weight)
        after, share = add_images(weights, self.rate[0], batch.size)
        several = images > 1.5  # (layer,)
        return (
            torch.where(several, after.total, self.spread_weight),
            torch.where(several, share, 0.0),
        )

    def _noted(
        self, rules: Sequence[RememberedStatistics], weights: Weights, spread_weight: Tensor
    ) -> dict[str, Tensor]:
        """What is noted of each layer: the new where the batch came by, the old elsewhere."""
        some = reached(rules)
        layers = slice(None) if some is None else some
        target = self.measured(rules)
        weighed = [rule.source_weight for rule in rules if rule.source_weight is not None]
        found = {
            "weight": weights.total,
            "squares": weights.squares,
            "spread_weight": spread_weight,
        }
        after = {name: self.get_buffer(name).clone() for name in (*found, "source_weight")}
        for name, new in found.items():
            after[name][layers] = new[layers]
        if weighed:
            new_weights = together(weighed, like=self.source_weight)
            after["source_weight"][layers] = new_weights.clamp_max(_BELOW_ONE)
        return after | {
            "target_mean": target.mean,
            "target_variance": target.variance,
            "spread": together([rule.spread for rule in rules], like=self.spread),
        }

    def _with_batch(self, rules: Sequence[RememberedStatistics], share: Tensor) -> Tensor:
        """The memories with the batch in them; as before in layers that it did not come by."""
        before = self.memories.split([2 * size for size in self.sizes], dim=1)
        means = [
            old[-1:] if rule.batch is None else rule.batch
            for rule, old in zip(rules, before, strict=True)
        ]
        shares = with_whole_batch(share)  # (layer, memory + 1)
        left_out = [place for place, rule in enumerate(rules) if rule.batch is None]
        if left_out:
            shares[left_out] = 0
        return torch.lerp(self.memories, torch.cat(means, dim=1), shares[self.layer_of_moment].T)


_BELOW_ONE = 1 - 2**-20  # a weight of 1 says that no batch has reached the layer
