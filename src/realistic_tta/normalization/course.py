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

from realistic_tta.statistics.changes import Changes, Seen, Sight, look
from realistic_tta.statistics.content import scatter_of
from realistic_tta.statistics.image_moments import Units
from realistic_tta.statistics.leaning import Number
from realistic_tta.statistics.memories import Weights
from realistic_tta.statistics.signature import FEATURES, has_signature, signatures

from .replicas import Replicas

MOST_CHANNELS = 16  # of the first layer that are looked at
MOST_IMAGES = 16  # of a batch


class Shares(NamedTuple):
    """What memories, last batches and this one weigh in a layer's averages, and how sure these are.

    Rows are the memories, the last batches and this batch, one below the other.
    steps: from them to the steps from the source to each memory with the batch, and to the batch,
        of what still counts, (memory + 1, row).
    after: from them to the memories of all images, (memory, row).
    usual: from them, without this batch, to what images of the domain usually have, (1, row - 1).
    spread: the batch's share in it, a number.
    correction: n / (n - 1) for the n images that the spread is measured among.
    uncertainty: variance of each memory's mean, as a part of the spread.
    tolerance: mean squared distance of a moment from the source that counts as none.
    least: what the source weighs at least; None to leave it out.
    """

    steps: Tensor
    after: Tensor
    usual: Tensor
    spread: Number
    correction: Number
    uncertainty: Sequence[Number]
    tolerance: float
    least: float | None

    @property
    def shortest(self) -> int:
        """Which row is the shortest memory."""
        return len(self.after) - 1


def features_of(channels: int) -> int:
    """How many numbers a signature has in a first layer of so many channels."""
    return FEATURES * len(range(0, channels, _every(channels, MOST_CHANNELS)))


class Weighed(NamedTuple):
    """What a batch makes of the weights in every layer.

    shares: of each layer. weights: of all images in the memories, with the batch, (layer, memory).
    spread_weight: of the images that the spread is measured from, (layer,).
    """

    shares: list[Shares]
    weights: Weights
    spread_weight: Tensor


class Course:
    """What the batch tells of the stream, and what that makes of every layer's shares.

    known: of the stream so far; None not to look. weigh: every layer's shares, from what was seen.
    nothing: to be seen where nobody looks. doubt: that there are any changes, 0 to 1. batch: how
    many images came. decay: of what is known of content, with each image.
    """

    def __init__(
        self,
        known: Changes | None,
        weigh: Callable[[Seen], Weighed],
        *,
        nothing: Seen,
        doubt: Tensor,
        batch: int,
        decay: Tensor,
    ) -> None:
        self.known, self.weigh, self.seen = known, weigh, nothing
        self.doubt, self.batch, self.decay = doubt, batch, decay
        self.after: Changes | None = None
        self._weighed: Weighed | None = None

    @property
    def weighed(self) -> Weighed:
        """Worked out once it is asked for, and again once the first layer has looked."""
        if self._weighed is None:
            self._weighed = self.weigh(self.seen)
        return self._weighed

    def watch(
        self, inputs: Tensor, units: Units, trust: Tensor | None, replicas: Replicas | None
    ) -> None:
        """Looks at what reaches the first layer, once. trust: what each image counts for."""
        if self.known is None or self.after is not None or not has_signature(inputs):
            return
        sight = sight_of(inputs, units, trust, replicas, self.batch)
        seen, self.after = look(self.known, sight, self.decay)
        self.seen, self._weighed = seen.doubted(self.doubt), None


def sight_of(
    inputs: Tensor, units: Units, trust: Tensor | None, replicas: Replicas | None, batch: int
) -> Sight:
    """Of some images and channels, evenly spaced; of all processes together."""
    some, channels = (slice(None, None, _every(*each)) for each in _most(inputs))
    whole, parts = (each.clamp(-_MOST, _MOST) for each in signatures(inputs[some], units, channels))
    weights = whole.new_ones(len(whole)) if trust is None else trust[some]
    total, scatter = weights @ whole, scatter_of(parts * weights[:, None, None])
    counted, looked_at = weights.sum(), len(whole)
    if replicas is not None:
        own = torch.cat((total, scatter.flatten(), counted[None], counted.new_tensor([looked_at])))
        everyone = replicas.add(own)
        total, scatter, (counted, number) = everyone.split([len(total), scatter.numel(), 2])
        scatter, looked_at = scatter.view(len(total), -1), int(number)
    return Sight(total / counted.clamp_min(_LEAST), scatter, looked_at, batch, parts.shape[1])


def _most(inputs: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of images and of channels: how many there are, and how many are looked at."""
    return (inputs.shape[0], MOST_IMAGES), (inputs.shape[1], MOST_CHANNELS)


def _every(count: int, most: int) -> int:
    """The step at which no more than so many are taken."""
    return max(1, -(-count // most))


_MOST = 50.0  # of a signature's numbers: one wild image must not be all that there is
_LEAST = 1e-6
