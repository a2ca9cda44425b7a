"""The library's own method: memories of several lengths and the source, each as far as it is sure.

It goes on from the paper's: one pass, the same at every batch size, from the first image on, where
labels come in runs, and where nothing has shifted. docs/beyond.md says why each piece is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from realistic_tta.functional.arrays import Array, as_tensor, at_hand, positive_part, quiet
from realistic_tta.functional.changes import Changes, Seen
from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.image_moments import Units, is_far
from realistic_tta.functional.kernel import Room
from realistic_tta.functional.leaning import numbers, table, together
from realistic_tta.functional.memories import Passed, Weights, is_whole, steady, steps
from realistic_tta.functional.rectification import VARIANCE_FLOOR
from realistic_tta.layers.course import Course, Shares, Weighed, features_of
from realistic_tta.layers.remembered_statistics import (
    BatchVariances,
    Known,
    RememberedStatistics,
    TrustedStatistics,
    in_full,
    is_cast,
)
from realistic_tta.layers.statistics_rules import reached

from .batch import Batch
from .moment_memory import MomentMemory
from .realistic_settings import RealisticSettings

SPREAD_START = 0.1  # of a moment, in the source's units, until two images have been seen


class Passage(NamedTuple):
    """What the network answered, and what its layers and the whole of them found."""

    outputs: Any
    rules: list[RememberedStatistics]
    course: Course


class Realistic(MomentMemory):
    """Statistics from memories of several lengths and the source, in one pass.

    Buffers besides those that every such method has, and those of moment_memory.py, label_memory.py
    and mirror_memory.py; course_...: what changes of domain are seen by (statistics/changes.py).
    """

    name = "realistic"
    compiles = True
    takes_replicas = True
    shares_trust = True
    settings_type = RealisticSettings
    settings: RealisticSettings

    def __init__(self, network: nn.Module, settings: RealisticSettings) -> None:
        super().__init__(network, settings)
        self._far = [is_far(each) for each in self.by_layer(self.source)]
        self._units: tuple[Tensor, list[Units]] | None = None
        self._rooms: Sequence[Room | None] = [Room(size) for size in self.sizes]
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
        """Look whether the stream has changed; measure and predict in one pass; remember."""
        outputs, rules, course = self._pass_in_mirror(batch) or self._pass(batch)
        with quiet(), in_full(self.rate):
            noted = self._noted(rules, course)
            outputs, mirror = self.from_both(outputs) if course.twice else (outputs, {})
            outputs, order = self.in_order(outputs, batch, rules)
        self.remember(**noted, **mirror, **order)
        return outputs

    def _pass(self, batch: Batch, *, twice: bool = False) -> Passage:
        """One pass of the network. twice: mirror images come behind the images."""
        with quiet(), in_full(self.rate):
            course = self._course(batch, twice=twice)
            rules = self._rules(self._known(), course)
        if is_cast(self.rate):
            for rule in rules:
                rule.cast = True
        with quiet():
            return Passage(self.run_with(batch, rules), rules, course)

    def _pass_in_mirror(self, batch: Batch) -> Passage | None:
        """The same with mirror images, if that can be; what is wrong with the batch comes up later.

        A network that was made for one size of batch is not to be asked again.
        """
        both = self.with_mirror(batch)
        if both is None:
            return None
        try:
            passed = self._pass(both, twice=True)
        except Exception:
            if torch.compiler.is_compiling():  # it is the compiler's
                raise
        else:
            if self.fits(passed.outputs, batch):
                return passed
        alone = self._pass(batch)
        self.takes_mirror = False
        return alone

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
            "memories": empty.new_zeros(len(scopes) + self.last_batches, 2 * sum(self.sizes)),
            "recent_images": empty.new_zeros(self.last_batches, layers),
            "spread": 2 * SPREAD_START * self.channels.to(empty.dtype),
            "weight": weights.total.repeat(layers, 1),
            "squares": weights.squares.repeat(layers, 1),
            "spread_weight": empty.new_zeros(layers),
            **self.mirror_at_first(),
            **self.order_at_first(),
            **self._course_at_first(),
        }

    def _course_at_first(self) -> dict[str, Tensor]:
        if not self.settings.changes or not self.sizes:
            return {}
        changes = Changes.none(features_of(self.sizes[0]), self.source_mean)
        return {f"course_{name}": value for name, value in changes._asdict().items()}

    def _course(self, batch: Batch, *, twice: bool) -> Course:
        """What the pass tells of the stream, and what that makes of the memories."""
        known = None
        if self.settings.changes:
            held = [self._buffers[name] for name in _COURSE]
            known = Changes(*(at_hand(each) for each in held if each is not None))
        return Course(
            known,
            lambda seen: self._weigh(seen, batch.size),
            nothing=lambda: Seen(*map(at_hand, Seen.nothing(self.last_batches, self.rate))),
            doubt=self.doubt_of_changes(),
            batch=batch.size,
            decay=self.settings.decay,
            twice=twice,
        )

    def _weigh(self, seen: Seen, size: int) -> Weighed:
        """What memories and batch weigh, once it is known what of the past still counts."""
        passed = self.passed(size)
        left, memories = self.counting(seen.recent, seen.older)
        now, share = left.after(passed)  # (layer, memory)
        spread_weight, spread_share = self._spread_weight(now.images[:, -1], passed)
        shares = self._shares(memories, now, share, spread_share)
        if is_whole(seen.older):
            return Weighed(shares, now, spread_weight, memories, share)
        before_it, joined = self.counting(seen.recent * 0 + 1, seen.joined)
        after, whole = before_it.after(passed)
        return Weighed(shares, after, spread_weight, joined, whole)

    def _shares(
        self, memories: Array, weights: Weights, share: Array, spread_share: Array
    ) -> list[Shares]:
        """Of each layer.

        memories: without the batch, (memory, moment). weights: with it, (layer, memory). share: of
        the batch in them, (layer, memory), and in the spread, (layer,).
        """
        layer, between = at_hand(self.layer_of_moment), at_hand(self.between)
        before, gains = steps(memories, share, layer, between)
        usual = self.split(memories[:2][-1:])
        shortest = weights.images[:, -1]
        correction = shortest / (shortest - 1 + (shortest < 1.5))  # n / (n - 1); one has none
        moments = zip(self.split(before), gains[:, :, None], usual, strict=True)
        doubtful = table(self._doubtful(weights))
        sure = zip(numbers(spread_share), numbers(correction), doubtful, strict=True)
        settings = self.settings
        least = settings.source_share if settings.lean_on_source else None
        return [
            Shares(*held, *each, settings.tolerance, least)
            for held, each in zip(moments, sure, strict=True)
        ]

    def _rules(self, known: Sequence[Known], course: Course) -> list[RememberedStatistics]:
        """One a layer."""
        return [self._rule(place, layer, course) for place, layer in enumerate(known)]

    def _rule(self, place: int, known: Known, course: Course) -> RememberedStatistics:
        """Of the layer at this place."""
        if self.settings.robust:
            return TrustedStatistics(place, known, course)
        kind = RememberedStatistics if self.settings.total_variance else BatchVariances
        return kind(place, known, course)

    def _known(self) -> list[Known]:
        """What is known of each layer."""
        memories = self.split(at_hand(self.memories)[: len(self.rate)])
        spread = numbers(self.spread)
        rooms = [None] * len(spread) if torch.compiler.is_compiling() else self._rooms
        each = zip(self._units_by_layer(), memories, spread, rooms, strict=True)
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

    def _doubtful(self, weights: Weights) -> Array:
        """What of each memory chance may explain, as a part of the spread, (layer, memory).

        Not what a batch of the training had by chance: the network has been trained with that.
        """
        return positive_part(self.noise() / weights.images - 1 / self.settings.source_batch_size)

    def _spread_weight(self, images: Array, passed: Passed) -> tuple[Array, Array]:
        """Weight of the images behind the spread, and this batch's share; one image has none."""
        before, several = at_hand(self.spread_weight), images > 1.5  # (layer,)
        after, share = Weights(before, before).after(Passed(*(each[0] for each in passed)))
        return before + several * (after.total - before), several * share

    def _noted(self, rules: Sequence[RememberedStatistics], course: Course) -> dict[str, Tensor]:
        """What is noted of each layer: the new where the batch came by, the old elsewhere."""
        target, some = self.measured(rules), reached(rules)
        weights = together([rule.source_weight for rule in rules], like=self.source_weight)
        of_source = {"source_weight": weights.clamp_max_(_BELOW_ONE)}
        changes = {} if course.after is None else course.after._asdict()
        return {
            "target_mean": target.mean,
            "target_variance": target.variance,
            "spread": together([rule.spread for rule in rules], like=self.spread),
            **self.only(some, of_source | self.moments_after(rules, course)),
            **{f"course_{name}": as_tensor(value) for name, value in changes.items()},
        }


_COURSE = [f"course_{name}" for name in Changes._fields]
_BELOW_ONE = 1 - 2**-20  # a weight of 1 says that no batch has reached the layer
