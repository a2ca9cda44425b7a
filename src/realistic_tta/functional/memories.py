"""Averages over the last so many images: what an image weighs in them, how many they are worth.

Images are counted, not batches: ten batches of one image and one batch of ten leave the past with
the same weight. Used by methods/realistic.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .arrays import Array, alike, as_tensor, join, space
from .leaning import number
from .momentum import THRESHOLD


def forgetting(scopes: Sequence[float], like: Tensor) -> Tensor:
    """The rate at which a memory forgets: logarithm of the decay with each image, (memory,).

        decay = exp(rate) = 0.1 ** (1 / scope)

    An image weighs more than a tenth of the newest for `scope` images: Proposition 2's expanded
    scope, for any number of images rather than for batches of one size. The logarithm, because a
    long memory's decay is too near 1 for float32.

    >>> rates = forgetting([16, 128], torch.zeros(1, device="cpu"))
    >>> [round(decay, 3) for decay in rates.exp().tolist()]
    [0.866, 0.982]
    """
    return like.new_tensor([math.log(THRESHOLD) / scope for scope in scopes])


class Weights(NamedTuple):
    """Sum of the images' weights in a memory, and of their squares; any shape (..., memory)."""

    total: Array
    squares: Array

    @property
    def images(self) -> Array:
        """How many equally weighted images would give a mean as exact: Kish's effective number."""
        return self.total * self.total / self.squares

    def after(self, passed: Passed) -> tuple[Weights, Array]:
        """The weights after a batch, and its share in the average: see `add_images`."""
        total = passed.kept * self.total + passed.added
        squares = passed.kept_squares * self.squares + passed.added_squares
        return Weights(total, squares), passed.added / total


class Passed(NamedTuple):
    """What a batch makes of the weights in each memory, all of one shape.

    kept: the part of the weights before it that is left. added: what its images weigh.
    kept_squares, added_squares: the same of the squared weights.
    """

    kept: Array
    added: Array
    kept_squares: Array
    added_squares: Array

    @classmethod
    def of(cls, rate: Array, images: int | Array) -> Passed:
        """The formulas are with `add_images`."""
        of = space(rate)
        kept = of.exp(rate * images)
        added = of.expm1(rate * images) / of.expm1(rate)
        return cls(kept, added, kept * kept, added * added / images)


def steady(rate: Tensor) -> Weights:
    """The weights after endlessly many images that came one by one."""
    return Weights(-1 / torch.expm1(rate), -1 / torch.expm1(2 * rate))


def add_images(weights: Weights, rate: Array, images: int | Array) -> tuple[Weights, Array]:
    """The weights after a batch, and the share that the batch has in the average.

        total = decay ** images * total + added
        share = added / total                       added = 1 + decay + ... + decay ** (images - 1)

    rate: as `forgetting` gives it. Inside a batch all images weigh the same. From empty weights the
    first share is 1, and the average is the plain mean while the decay is not yet felt: the warm
    start.

    >>> none, rate = torch.zeros(1, device="cpu"), torch.tensor([0.5], device="cpu").log()
    >>> weights, share = add_images(Weights(none, none), rate, images=1)
    >>> share.item(), round(add_images(weights, rate, images=1)[1].item(), 4)
    (1.0, 0.6667)
    """
    return weights.after(Passed.of(rate, images))


def recent_weights(rate: Array, images: Array) -> Array:
    """What each of the last batches weighs in each memory, (layer, memory, batch).

        weight = added * decay ** images since          added: as in `add_images`

    images: how many each had in each layer, the newest first, (batch, layer).

    >>> rate, images = torch.tensor([0.5], device="cpu").log(), torch.ones(3, 1, device="cpu")
    >>> [round(each, 4) for each in recent_weights(rate, images)[0, 0].tolist()]
    [1.0, 0.5, 0.25]
    """
    of, each = space(rate), images.T[:, None]  # (layer, 1, batch)
    since, rates = each.cumsum(2) - each, rate[:, None]  # (memory, 1)
    weights: Array = of.expm1(rates * each) / of.expm1(rates) * of.exp(rates * since)
    return weights


class Remembered(NamedTuple):
    """Memories, and beside them the last batches that are in them.

    weights: of the images in each memory, (layer, memory).
    rate: at which each memory forgets, (memory,).
    images: how many each of the last batches had, (batch, layer).
    """

    weights: Weights
    rate: Array
    images: Array

    def thinned(self, kept: Array, older: Array) -> tuple[Weights, Array]:
        """What is left where the last batches count for a part, and what is older for a smaller.

            memory = (older * total * memory + sum of (kept - older) * weight * batch) / total left

        kept: of each of the last batches, (batch,), the newest first, none less than the one after
        it. older: of what came before, (). The weights that are left, and what takes memories and
        last batches, one below the other, to such memories: (layer, memory, memory + batch).
        """
        recent = recent_weights(self.rate, self.images)  # (layer, memory, batch)
        more = recent * (kept - older)
        total = older * self.weights.total + more.sum(-1)
        each = recent * recent / (self.images + (self.images < 1)).T[:, None]
        squares = each @ (kept * kept - older * older) + older * older * self.weights.squares
        memories = _one(self.rate) * (older * self.weights.total)[..., None]
        matrix = join((memories, more), -1) / total.clip(_LEAST)[..., None]
        return Weights(total, squares), matrix


def _one(like: Array) -> Array:
    """The identity, (memory, memory)."""
    tensor = as_tensor(like)
    one = torch.eye(len(tensor), dtype=tensor.dtype, device=tensor.device)
    return alike(one, like)


def is_whole(part: Array) -> bool:
    """Whether a part, (), is known to be all: then nothing has to be `thinned`."""
    whole = number(part)
    return not isinstance(whole, Tensor) and whole == 1


def between(memories: int, like: Tensor) -> Tensor:
    """From each row to the one below, and from 0 to the first: (memory + 1, memory + 1).

    >>> between(1, torch.zeros(1, device="cpu")).tolist()
    [[1.0, 0.0], [-1.0, 1.0]]
    """
    rows = torch.eye(memories + 1, dtype=like.dtype, device=like.device)
    return rows - rows.roll(1, 0).tril(-1)


def steps(memories: Array, share: Array, layer: Array, between: Array) -> tuple[Array, Array]:
    """From the source over each memory with a batch to the batch itself, in two parts.

        step = before + gains * batch
        memory with the batch = (1 - share) * memory + share * batch

    memories: of all layers, (memory, moment). share: of the batch in them, (layer, memory).
    layer: that of each moment. between: as `between` gives it. before: (memory + 1, moment), gains:
    (layer, memory + 1).
    """
    down = between[:, :-1]
    return down @ (memories * (1 - share.T[:, layer])), share @ down.T + between[:, -1]


_LEAST = 1e-6
