"""Whether the stream has changed: what all layers of one pass share.

The first layer looks at the images before anything is normalised, and the others hear of it: what
each batch of the past still counts for, and so what memories and batch weigh in every layer. Like a
rule it changes nothing outside itself. Made by methods/realistic.py, asked by
remembered_statistics.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from realistic_tta.functional.arrays import Array, at_hand
from realistic_tta.functional.changes import Changes, Seen, Sight, look
from realistic_tta.functional.content import scatter_of
from realistic_tta.functional.image_moments import Units
from realistic_tta.functional.leaning import Number, at_least, number, together
from realistic_tta.functional.memories import Weights
from realistic_tta.functional.signature import FEATURES, has_signature, mean_signature, signatures

from .replicas import Replicas

MOST_CHANNELS = 16  # of the first layer that are looked at


class Shares(NamedTuple):
    """What the memories of a layer hold, what the batch weighs in them, and how sure they are.

    before, gains: the steps from the source to each memory with the batch, and to the batch, are
        before + gains * batch, (memory + 1, 2 * channel) and (memory + 1, 1).
    usual: what images of the domain usually have, (1, 2 * channel).
    spread: the batch's share in it, a number.
    correction: n / (n - 1) for the n images that the spread is measured among.
    uncertainty: variance of each memory's mean, as a part of the spread.
    tolerance: mean squared distance of a moment from the source that counts as none.
    least: what the source weighs at least; None to leave it out.
    """

    before: Array
    gains: Array
    usual: Array
    spread: Number
    correction: Number
    uncertainty: Sequence[Number]
    tolerance: float
    least: float | None


def features_of(channels: int) -> int:
    """How many numbers a signature has in a first layer of so many channels."""
    return FEATURES * len(range(0, channels, _every(channels)))


class Weighed(NamedTuple):
    """What a batch makes of the weights in every layer.

    shares: of each layer. weights: of all images in the memories, with the batch, (layer, memory).
    spread_weight: of the images that the spread is measured from, (layer,).
    memories: those of all images, without the batch, (memory, moment).
    share: of the batch in them, (layer, memory).
    """

    shares: list[Shares]
    weights: Weights
    spread_weight: Array
    memories: Array
    share: Array


class Course:
    """What the batch tells of the stream, and what that makes of every layer's shares.

    known: of the stream so far; None not to look. weigh: every layer's shares, from what was seen.
    nothing: to be seen where nobody looks. doubt: that there are any changes, 0 to 1. batch: how
    many images came. decay: of what is known of content, with each image. twice: whether mirror
    images come behind them, to be normalised alike and not to be counted.
    """

    def __init__(
        self,
        known: Changes | None,
        weigh: Callable[[Seen], Weighed],
        *,
        nothing: Callable[[], Seen],
        doubt: Number,
        batch: int,
        decay: float,
        twice: bool = False,
    ) -> None:
        self.known, self.weigh, self.nothing = known, weigh, nothing
        self.seen: Seen | None = None
        self.doubt, self.batch, self.decay, self.twice = doubt, batch, decay, twice
        self.after: Changes | None = None
        self._weighed: Weighed | None = None

    @property
    def weighed(self) -> Weighed:
        """Worked out once it is asked for, and again once the first layer has looked."""
        if self._weighed is None:
            self._weighed = self.weigh(self.seen or self.nothing())
        return self._weighed

    def watch(
        self, inputs: Tensor, units: Units, trust: Tensor | None, replicas: Replicas | None
    ) -> None:
        """Looks at what reaches the first layer, once. trust: what each image counts for."""
        if self.known is None or self.after is not None or not has_signature(inputs):
            return
        sight = sight_of(inputs, units, trust, replicas)
        seen, self.after = look(self.known, sight, self.decay)
        self.seen, self._weighed = seen.doubted(self.doubt), None


def sight_of(
    inputs: Tensor, units: Units, trust: Tensor | None, replicas: Replicas | None
) -> Sight:
    """Of some channels, evenly spaced; of the images of all processes together."""
    every = _every(inputs.shape[1])
    if trust is None and replicas is None:
        at_once = mean_signature(inputs, units, every, _MOST)
        if at_once is not None:
            return Sight(*at_once, len(inputs), _QUARTERS)
    found = signatures(inputs, units, every)
    whole, parts = (torch.nan_to_num(each, _MOST).clamp(-_MOST, _MOST) for each in found)
    images, wide, dtype = len(whole), _wide(whole), whole.dtype
    weight: Number = float(images)
    if trust is not None:
        whole, parts = whole * trust[:, None], parts * trust[:, None, None]
        weight = number(trust.sum(dtype=wide))
    sums, scatter = whole.sum(dim=0, dtype=wide), scatter_of(parts.to(wide))
    if replicas is not None:
        counts = together([weight, float(images)], like=sums)
        everyone = replicas.add(torch.cat((sums, scatter.flatten(), counts)))
        sums, flat, counts = everyone.split([len(sums), scatter.numel(), 2])
        scatter, (weight, images) = flat.view_as(scatter), (number(counts[0]), int(counts[1]))
    mean = sums / at_least(weight, _LEAST)
    return Sight(at_hand(mean.to(dtype)), at_hand(scatter.to(dtype)), images, parts.shape[1])


def _wide(like: Tensor) -> torch.dtype:
    """Sums do not depend on how images are spread over processes; not every device has it."""
    return like.dtype if like.device.type == "mps" else torch.float64


def _every(channels: int) -> int:
    """The step at which no more than so many are taken."""
    return max(1, -(-channels // MOST_CHANNELS))


_MOST = 50.0  # of a signature's numbers: one wild image must not be all that there is
_LEAST = 1e-6
_QUARTERS = 4
