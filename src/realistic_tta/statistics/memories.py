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

    total: Tensor
    squares: Tensor

    @property
    def images(self) -> Tensor:
        """How many equally weighted images would give a mean as exact: Kish's effective number."""
        return self.total.square() / self.squares


def steady(rate: Tensor) -> Weights:
    """The weights after endlessly many images that came one by one."""
    return Weights(-1 / torch.expm1(rate), -1 / torch.expm1(2 * rate))


def add_images(weights: Weights, rate: Tensor, images: int | Tensor) -> tuple[Weights, Tensor]:
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
    kept = torch.exp(rate * images)
    added = torch.expm1(rate * images) / torch.expm1(rate)
    total = kept * weights.total + added
    squares = kept.square() * weights.squares + added.square() / images
    return Weights(total, squares), added / total


def recent_weights(rate: Tensor, images: Tensor) -> Tensor:
    """What each of the last batches weighs in each memory, (layer, memory, batch).

        weight = added * decay ** images since          added: as in `add_images`

    images: how many each had in each layer, the newest first, (batch, layer).

    >>> rate, images = torch.tensor([0.5], device="cpu").log(), torch.ones(3, 1, device="cpu")
    >>> [round(each, 4) for each in recent_weights(rate, images)[0, 0].tolist()]
    [1.0, 0.5, 0.25]
    """
    since = images.cumsum(dim=0) - images
    rates = rate[:, None, None]
    weights = torch.expm1(rates * images) / torch.expm1(rates) * torch.exp(rates * since)
    return weights.permute(2, 0, 1)


class Remembered(NamedTuple):
    """Memories, and beside them the last batches that are in them.

    weights: of the images in each memory, (layer, memory).
    rate: at which each memory forgets, (memory,).
    images: how many each of the last batches had, (batch, layer).
    """

    weights: Weights
    rate: Tensor
    images: Tensor

    def thinned(self, kept: Tensor, older: Tensor) -> tuple[Weights, Tensor]:
        """What is left where the last batches count for a part, and what is older for a smaller.

            memory = (older * total * memory + sum of (kept - older) * weight * batch) / total left

        kept: of each of the last batches, (batch,), the newest first, none less than the one after
        it. older: of what came before, (). The weights that are left, and what takes memories and
        last batches, one below the other, to such memories: (layer, memory, memory + batch).
        """
        whole = number(older)
        if not isinstance(whole, Tensor) and whole == 1:
            return self.weights, self._as_they_are()
        recent = recent_weights(self.rate, self.images)  # (layer, memory, batch)
        more = recent * (kept - older)
        total = older * self.weights.total + more.sum(dim=-1)
        each = recent.square() / self.images.clamp_min(1).T[:, None]
        squares = each @ (kept.square() - older.square()) + older.square() * self.weights.squares
        old = torch.diag_embed(older * self.weights.total)
        matrix = torch.cat((old, more), dim=-1) / total.clamp_min(_LEAST)[..., None]
        return Weights(total, squares), matrix

    def _as_they_are(self) -> Tensor:
        layers, memories = self.weights.total.shape
        rows = memories + len(self.images)
        like = self.weights.total
        same = torch.eye(memories, rows, dtype=like.dtype, device=like.device)
        return same.expand(layers, -1, -1)


def with_batch(matrix: Tensor, share: Tensor) -> Tensor:
    """The same with a batch below: (..., memory, row) to (..., memory, row + 1).

    share: of the batch in each memory, (..., memory).

    >>> with_batch(torch.eye(1, device="cpu"), torch.tensor([0.25], device="cpu")).tolist()
    [[0.75, 0.25]]
    """
    share = share.unsqueeze(-1)
    return torch.cat((matrix * (1 - share), share), dim=-1)


def uncertainty(images: Tensor, concentration: Tensor) -> Tensor:
    """Variance of each memory's mean, as a part of the images' spread: (..., memory).

        uncertainty = max(1 / images, concentration)

    One over the number of independent images; images of one class are not. images: as
    `Weights.images`, (..., memory). concentration: of the predicted classes, (memory,).
    """
    return torch.maximum(1 / images, concentration)


def concentration(now: Tensor, shares: Tensor, weights: Weights) -> Tensor:
    """How far the classes in each memory are from what they are in the long run, (memory,).

    now: share of each class among the images that still count, (memory, class). shares: the same of
    all images, the longest memory first; what is usual is what that one holds. The longest itself
    is held against evenly spread classes, as far as there is `doubt`. weights: of the images behind
    the shares, (memory,).
    """
    usual = shares[0]
    found = class_concentration(now, usual)
    if len(shares) == 1:
        return torch.maximum(found, class_concentration(shares, _even(usual)))
    chance = weights.squares[1] / weights.total[1].square().clamp_min(_LEAST)
    runs = doubt(class_concentration(shares[1], usual), chance, weights.total)
    longest = class_concentration(usual, _even(usual)) * runs
    return torch.cat((torch.maximum(found[:1], longest), found[1:]))


def doubt(next_apart: Tensor, chance: Tensor, weight: Tensor) -> Tensor:
    """How far uneven classes in the longest memory are to be taken for runs of labels, 0 to 1.

        doubt = 1 - older * (1 - runs)       older = 1 - weight of the next / weight of the longest
                                             runs  = 1 - min(1, chance / next_apart)

    Under shift a network predicts some of its classes too often, in any order. In runs the next
    memory's classes lie further from the longest's than independent images would, and only what is
    older can tell. next_apart: their concentration, (). chance: that of independent images.

    >>> weight, apart = torch.tensor([100.0, 0.0], device="cpu"), torch.tensor(0.5, device="cpu")
    >>> [doubt(apart, torch.tensor(chance, device="cpu"), weight).item() for chance in (0.0, 0.5)]
    [1.0, 0.0]
    """
    older = 1 - weight[1] / weight[0].clamp_min(_LEAST)
    runs = 1 - (chance / next_apart.clamp_min(_LEAST)).clamp_max(1)
    return 1 - older * (1 - runs)


def class_concentration(shares: Tensor, usual: Tensor) -> Tensor:
    """How far the shares of classes are from the usual ones, (..., class) to (...).

        concentration = |shares - usual| ** 2 / (1 - |usual| ** 2)

    Among n independent images it is 1 / n on average, whatever is usual; so one over it is the
    number of independent images that a memory is worth. It is 1 for a single class where they are
    usually even, and 0 where no class has been predicted yet. usual: (class,).

    >>> even, single = torch.tensor([[0.5, 0.5], [1.0, 0.0]], device="cpu")
    >>> class_concentration(even, even).item(), class_concentration(single, even).item()
    (0.0, 1.0)
    """
    left = 1 - usual.square().sum()
    apart = (shares - usual).square().sum(dim=-1) / left.clamp_min(_LEAST)
    return apart * shares.sum(dim=-1)


def _even(shares: Tensor) -> Tensor:
    return torch.full_like(shares, 1 / len(shares))


_LEAST = 1e-6  # of what is left where one class is all there is


def predicted(logits: Tensor, classes: int) -> Tensor:
    """Whether a class is the one predicted, (image, class)."""
    names = torch.arange(classes, device=logits.device)
    return logits.argmax(dim=1, keepdim=True) == names
