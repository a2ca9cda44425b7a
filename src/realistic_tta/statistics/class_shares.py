"""What the predicted classes tell: how many independent images a memory is worth.

Images of one class are not independent. How far the shares of classes in a memory are from the
usual ones says how many independent images it is worth, and whether labels come in runs. Used by
methods/class_memory.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .leaning import Number, at_least, number, numbers, share
from .memories import Weights

_LEAST = 1e-6  # of what is left where one class is all there is
_MARGIN = 1.5  # times chance: no more is no sign of runs
_NONE = 1e-9


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
    apart = found[1] if now is shares else class_concentration(shares[1], usual)
    total, squares = numbers(weights.total), numbers(weights.squares)
    chance = squares[1] / at_least(total[1] * total[1], _LEAST)
    longest = class_concentration(usual, _even(usual)) * doubt(number(apart), chance, total)
    return torch.cat((torch.maximum(found[:1], longest), found[1:]))


def doubt(next_apart: Number, chance: Number, weight: Sequence[Number]) -> Number:
    """How far uneven classes in the longest memory are to be taken for runs of labels, 0 to 1.

        doubt = 1 - older * (1 - runs)       older = 1 - weight of the next / weight of the longest
                                             runs  = 1 - min(1, chance / next_apart)

    Under shift a network predicts some of its classes too often, in any order. In runs the next
    memory's classes lie further from the longest's than independent images would, and only what is
    older can tell. next_apart: their concentration. chance: that of independent images.

    >>> [doubt(0.5, chance, [100.0, 0.0]) for chance in (0.0, 0.5)]
    [1.0, 0.0]
    """
    older = 1 - weight[1] / at_least(weight[0], _LEAST)
    runs = 1 - share(chance, at_least(next_apart, _LEAST))
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
    left = (1 - usual.dot(usual)).clamp_min(_LEAST)
    return (shares - usual).square().sum(dim=-1) / left * shares.sum(dim=-1)


def _even(shares: Tensor) -> Tensor:
    return torch.full_like(shares, 1 / len(shares))


def in_runs(runs: Tensor) -> Number:
    """How far labels come in runs, 0 to 1, a number; 0 while nothing has been predicted.

    runs: how concentrated the last images' classes were, and would be by chance; averages, (2,).

    >>> [in_runs(torch.tensor([found, 0.125], device="cpu")) for found in (0.125, 0.75)]
    [0.0, 0.75]
    >>> in_runs(torch.zeros(2, device="cpu"))
    0.0
    """
    found, chance = numbers(runs)
    return 1 - share(at_least(_MARGIN * chance, _NONE), at_least(found, _NONE))


def watch(runs: Tensor, apart: Tensor, chance: Tensor, kept: Tensor) -> Tensor:
    """The averages after a batch. apart, chance: concentration of the last images; kept: decay."""
    return torch.lerp(torch.stack((apart, chance)), runs, kept)


def predicted(logits: Tensor, classes: int) -> Tensor:
    """Whether a class is the one predicted, (image, class)."""
    names = torch.arange(classes, device=logits.device)
    return logits.argmax(dim=1, keepdim=True) == names
