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


def with_whole_batch(share: Tensor) -> Tensor:
    """The batch's shares in each memory and in itself, (..., memory + 1)."""
    return torch.nn.functional.pad(share, (0, 1), value=1.0)


def mixing(share: Tensor) -> Tensor:
    """What takes memories and batch, one below the other, to what they are after the batch.

    share: of the batch in each memory, (..., memory). A square matrix, (..., memory + 1, same).

    >>> mixing(torch.tensor([0.25], device="cpu")).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    shares = with_whole_batch(share)
    kept = torch.diag_embed(1 - shares)[..., :-1]
    return torch.cat((kept, shares.unsqueeze(-1)), dim=-1)


def uncertainty(images: Tensor, shares: Tensor, weight: Tensor) -> Tensor:
    """Variance of each memory's mean, as a part of the images' spread: (..., memory).

        uncertainty = max(1 / images, concentration)      of the longest: doubt * concentration

    One over the number of independent images; images of one class are not. images: as
    `Weights.images`, (..., memory). shares, weight: of the predicted classes in each memory,
    (memory, class), and of the images behind them, (memory,).
    """
    chance, apart = 1 / images, class_concentration(shares)
    if len(weight) == 1:
        return torch.maximum(chance, apart)
    longest = apart[:1] * doubt(apart[1], chance[..., 1:2], weight)
    return torch.maximum(chance, torch.cat((longest, apart[1:].expand_as(chance[..., 1:])), dim=-1))


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


def class_concentration(shares: Tensor) -> Tensor:
    """How far the classes in each memory are from what they are in the long run, (memory,).

        concentration = |shares - usual| ** 2 / (1 - |usual| ** 2)

    shares: of each class among the images in a memory, (memory, class), the longest first. usual:
    the longest memory's, and evenly spread classes for that one itself. Among n independent images
    it is 1 / n on average, whatever is usual; so one over it is the number of independent images
    that a memory is worth. It is 1 for a single class where they are usually even.

    >>> even, single = [0.5, 0.5], [1.0, 0.0]
    >>> class_concentration(torch.tensor([even, single], device="cpu")).tolist()
    [0.0, 1.0]
    """
    even = torch.full_like(shares[:1], 1 / shares.shape[1])
    usual = torch.cat((even, shares[:1].expand(len(shares) - 1, -1)))
    left = 1 - usual.square().sum(dim=1)
    apart = (shares - usual).square().sum(dim=1) / left.clamp_min(_LEAST)
    return apart * shares.sum(dim=1)  # 0 for a memory in which no class has been predicted yet


_LEAST = 1e-6  # of what is left where one class is all there is


def predicted(logits: Tensor, classes: int) -> Tensor:
    """Whether a class is the one predicted, (image, class)."""
    names = torch.arange(classes, device=logits.device)
    return logits.argmax(dim=1, keepdim=True) == names
