"""The rule of methods/realistic.py: statistics from memories of different length and the source.

A rule of its own file, like those in statistics_rules.py: it changes nothing outside itself, and
what it measured is read off it after the pass. Moments are in the source's units (`Units`), so the
source is at 0 and distances of all channels can be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from realistic_tta.functional.arrays import Array, as_tensor, at_hand, join
from realistic_tta.functional.channel_statistics import ChannelStatistics, pool
from realistic_tta.functional.image_moments import (
    Units,
    image_moments,
    to_batch_variances,
    to_statistics,
    without_between,
)
from realistic_tta.functional.kernel import Room, layer_at_once
from realistic_tta.functional.leaning import (
    Number,
    lean,
    number,
    source_weight,
    square,
    table,
)
from realistic_tta.functional.trust import remoteness_in_units, trust

from .course import Course, Shares
from .replicas import Replicas
from .statistics_rules import SharedRule


def is_cast(like: Tensor) -> bool:
    """Whether autocast is on: memories in half precision are not told from each other."""
    kind = like.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def in_full(like: Tensor) -> AbstractContextManager[Any]:
    """Without autocast."""
    return torch.autocast(like.device.type, enabled=False) if is_cast(like) else nullcontext()


class Known(NamedTuple):
    """What is known of a layer before a batch.

    units: those of its source.
    memories: moments averaged over the last images, (memory, 2 * channel), the longest first.
    spread: squared distance of an image's moments from their mean, a number.
    room: for what the C extension finds; None to do without it.
    """

    units: Units
    memories: Array
    spread: Number
    room: Room | None


class RememberedStatistics(SharedRule):
    """Leans on the source, then on each memory, as far as chance explains how they differ."""

    cast = False  # whether autocast is on in the pass
    in_c = True  # whether the C extension knows all that the rule does
    shares: Shares  # what memories and batch weigh, once the first layer has looked
    of_all: ChannelStatistics  # moments of the images of all processes, where there are several

    def __init__(self, place: int, known: Known, course: Course) -> None:
        self.place, self.known, self.course = place, known, course
        self.uses: list[tuple[Array, int]] = []
        self.trusted: list[Tensor] = []  # what each image of a use counts for, where that is asked
        self.batch: Array | None = None  # mean moments that are remembered, (1, 2 * channel)
        self.spread = known.spread
        self.source_weight: Number = 1.0
        self.target: ChannelStatistics | None = None

    @property
    def least_values(self) -> int:
        """One: it has a distance from the source's mean."""
        return 1

    def statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The estimate, with all inputs of this pass."""
        if self.course.twice:
            inputs = inputs[: len(inputs) // 2]
        if not self.cast:
            return self.estimate(inputs)
        with in_full(inputs):
            return self.estimate(inputs)

    def estimate(self, inputs: Tensor) -> ChannelStatistics:
        """The same, once precision is seen to."""
        known = self.known
        if self.place == 0:
            self.course.watch(inputs, known.units, self.trust(inputs), self.replicas)
        shares = self.shares = self.course.weighed.shares[self.place]
        if known.room is not None and self.in_c and not self.uses and self.replicas is None:
            at_once = self._at_once(inputs, known.room)
            if at_once is not None:
                return at_once
        if self.replicas is None:
            moments, weights = self._pool(inputs)  # (image, 2 * channel)
            mean = _average(moments, weights)  # (1, 2 * channel)
            within = _scatter(moments, mean, weights)
        else:
            mean, within = self._gather(inputs, self.replicas)
        self.batch = batch = self.batch_mean(mean)
        steps = shares.before + shares.gains * batch  # (memory + 1, 2 * channel)
        products = table(steps @ steps.T)  # (memory + 1, memory + 1)
        found = (within + products[-1][-1]) * shares.correction  # about the shortest memory
        self.spread = known.spread + shares.spread * (found - known.spread)
        return self.finish(steps, products[:-1])

    def _at_once(self, inputs: Tensor, room: Room) -> ChannelStatistics | None:
        """The same for a layer's first inputs, if the C extension can."""
        shares, units, known = self.shares, self.known.units, self.known
        steps = shares.before, shares.gains, units.origin, units.scale
        sure = shares.uncertainty, known.spread, shares.spread, shares.correction
        found = layer_at_once(
            inputs,
            (units.constant, units.slope, units.square_slope, units.shift, *steps),
            (*sure, shares.tolerance, shares.least),
            room,
        )
        if found is None:
            return None
        moments, self.batch, self.spread, self.source_weight, self.target = found
        self.uses.append((moments, inputs.shape[2:].numel()))
        return self.target

    def finish(self, steps: Array, products: list[list[Number]]) -> ChannelStatistics:
        """The estimate from the steps to each memory, with the source in it."""
        taken = self._lean(products)
        weight = self._source_weight(products, taken)
        kept = 1 - weight
        self.source_weight = 1 - kept * taken[0]
        self.target = self.to_statistics(add([kept * part for part in taken], steps))
        return self.target

    def trust(self, inputs: Tensor) -> Tensor | None:  # noqa: ARG002 - of any image
        """What each image counts for, (image,); None for the same."""
        return None

    def moments(self, inputs: Tensor) -> Array:
        """What each image counts with, (image, 2 * channel)."""
        return image_moments(inputs, self.known.units)

    def batch_mean(self, moments: Array) -> Array:
        """What of the batch's mean moments goes into the memories, (1, 2 * channel)."""
        return moments

    def to_statistics(self, moments: Array) -> ChannelStatistics:
        """What the moments in the memories stand for."""
        return to_statistics(moments, self.known.units)

    def _lean(self, products: list[list[Number]]) -> list[Number]:
        """How much of each step the estimate takes."""
        explained = [each * self.spread for each in self.shares.uncertainty]
        return lean(products, [0.0, *explained[1:]] if self.shares.least is None else explained)

    def _source_weight(self, products: list[list[Number]], taken: list[Number]) -> Number:
        """What the source weighs at last."""
        if self.shares.least is None:
            return 0.0
        distance = square(products, taken) / self.known.memories.shape[1]
        return source_weight(distance, self.shares.least, self.shares.tolerance)

    def _pool(self, inputs: Tensor) -> tuple[Array, Array | None]:
        """The images of every use of the layer so far, and what each weighs; None for the same."""
        positions = inputs.numel() // (inputs.shape[0] * inputs.shape[1])
        self.uses.append((self.moments(inputs), positions))
        if len(self.uses) == 1:
            return self.uses[0][0], None
        weights = [moments[:, :1] * 0 + float(count) for moments, count in self.uses]
        counts = join(weights, 0)
        return join([moments for moments, _ in self.uses], 0), counts / counts.sum()

    def _gather(self, inputs: Tensor, replicas: Replicas) -> tuple[Array, Number]:
        """Mean and scatter of all ranks' images, of every use so far; each weighs its positions."""
        like = as_tensor(self.known.memories)
        moments = self.moments(inputs) if len(inputs) else like.new_empty(0, like.shape[1])
        positions = inputs.shape[2:].numel()
        self.uses.append((moments, positions))
        use, values = replicas.measure(
            as_tensor(moments), correction=0, each=positions, least=self.least_values
        )
        self.of_all = pool(self.of_all, self.count, use, values) if self.count else use
        self.count += values
        mean, variance = self.of_all
        return at_hand(mean[None]), number(variance.sum())


class TrustedStatistics(RememberedStatistics):
    """The same; what an image lacks in trust is filled up from the shortest memory."""

    in_c = False

    def trust(self, inputs: Tensor) -> Tensor:
        """Little for an image far outside of what the network was trained on."""
        return trust(remoteness_in_units(as_tensor(super().moments(inputs))))

    def moments(self, inputs: Tensor) -> Array:
        """Between the image's own and those of the memory."""
        moments = as_tensor(super().moments(inputs))
        weights = trust(remoteness_in_units(moments))[:, None]  # (image, 1)
        self.trusted.append(weights)
        own = torch.where(weights > 0, moments, 0)  # squares may be Inf
        return at_hand(torch.lerp(as_tensor(self.known.memories[-1]), own, weights))


class BatchVariances(RememberedStatistics):
    """The same with the paper's average of batch variances in place of the total variance.

    For comparison: it leaves out how far the means of batches lie apart.
    """

    in_c = False

    @property
    def least_values(self) -> int:
        """Two, and as many of the mirror images, which do not count."""
        return 4 if self.course.twice else 2

    def batch_mean(self, moments: Array) -> Array:
        """The batch's mean, and its variance about it."""
        return without_between(moments)

    def to_statistics(self, moments: Array) -> ChannelStatistics:
        """The second is the variance already."""
        return to_batch_variances(moments, self.known.units)


def trust_in_images(rules: Sequence[RememberedStatistics], images: int) -> Tensor | None:
    """What each image counts for, (image, 1): as little as in any layer; None for the same."""
    found = [each for rule in rules for each in rule.trusted if len(each) == images]
    return torch.stack(found).amin(dim=0) if found else None


def add(parts: Sequence[Number], steps: Array) -> Array:
    """The sum of the steps, (step, ...), each times its part."""
    sum_: Array = parts[0] * steps[0]
    for part, step in zip(parts[1:], steps[1:], strict=False):  # the last may be left out
        sum_ = sum_ + part * step
    return sum_


def _average(moments: Array, weights: Array | None) -> Array:
    """Over the images: (image, 2 * channel) to (1, 2 * channel)."""
    if weights is None:
        images = len(moments)
        return moments if images == 1 else moments.sum(0)[None] / images
    return (weights * moments).sum(0)[None]


def _scatter(moments: Array, mean: Array, weights: Array | None) -> Number:
    """Mean squared distance of the images' moments from their mean, a number."""
    if len(moments) == 1:
        return 0.0
    apart = moments - mean
    if weights is not None:
        return number((weights * apart * apart).sum())
    apart = apart.reshape(-1)
    return number(apart @ apart) / len(moments)
