"""Chooses the TEMA momentum from class diversity (paper, Proposition 2 and Eq. 5).

Used by methods/tema.py and methods/rectified_tema.py, once for each batch, with the size of that
batch.

momentum: weight of the current batch, as in torch; 1.0 forgets the past.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import torch

from .class_diversity import class_diversity

CANDIDATES = (1.0, 0.1, 0.01, 0.001)  # paper, below Eq. 5
THRESHOLD = 0.1  # the paper's epsilon: a batch counts while its relative weight exceeds this
SCOPE_PENALTY = 0.01  # the paper's lambda


class MomentumObjective(NamedTuple):
    """What Eq. 5 weighs for one candidate: lower objective is better."""

    momentum: float
    expanded_scope: int
    class_diversity: float
    objective: float


def expanded_scope(momentum: float, batch_size: int, threshold: float = THRESHOLD) -> int:
    """The number of images a moving average effectively covers (Proposition 2).

        expanded_scope = floor(log(threshold) / log(1 - momentum)) * batch_size

    The current batch always counts, so the factor is at least 1; at momentum 1 it is exactly 1.

    >>> [expanded_scope(momentum, batch_size=1) for momentum in (1.0, 0.1, 0.01, 0.001)]
    [1, 21, 229, 2301]
    """
    if not 0 < momentum <= 1:
        raise ValueError(f"momentum is {momentum}; expected a number above 0 and at most 1")
    batches = 1 if momentum == 1 else math.floor(math.log(threshold) / math.log1p(-momentum))
    return max(batches, 1) * batch_size


def momentum_objective(
    momentum: float, classes: int, source_batch_size: int, batch_size: int
) -> MomentumObjective:
    """The quantity that Eq. 5 minimizes, for one candidate.

        objective = |source_diversity / target_diversity - 1|
                    + 0.01 * expanded_scope / source_batch_size

    >>> round(momentum_objective(0.1, 10, 128, 4).objective, 3)
    0.041
    """
    scope = expanded_scope(momentum, batch_size)
    source_diversity = class_diversity(classes, source_batch_size)
    target_diversity = class_diversity(classes, scope)
    mismatch = abs(source_diversity / target_diversity - 1)
    objective = mismatch + SCOPE_PENALTY * scope / source_batch_size
    return MomentumObjective(momentum, scope, target_diversity, objective)


def choose_momentum(
    classes: int,
    source_batch_size: int,
    batch_size: int,
    candidates: tuple[float, ...] = CANDIDATES,
) -> float:
    """The candidate with the smallest objective (Eq. 5); the first of equals.

    Args:
        classes: the number of classes.
        source_batch_size: the batch size of the model's training.
        batch_size: the number of images of the test batch.
        candidates: the momentums to choose from; by default the paper's.

    Returns:
        The weight of the current batch in the average, as in torch.

    Raises:
        ValueError: a count below 1.

    >>> [choose_momentum(10, 128, batch_size) for batch_size in (200, 64, 16, 4, 2, 1)]
    [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    objectives = [
        momentum_objective(momentum, classes, source_batch_size, batch_size)
        for momentum in candidates
    ]
    return min(objectives, key=lambda candidate: candidate.objective).momentum


def momentum_for(
    momentum: float | Literal["auto"],
    classes: int | None,
    source_batch_size: int,
    batch_size: int,
) -> float:
    """The given momentum, or for "auto" the one that `choose_momentum` chooses."""
    if momentum != "auto":
        return momentum
    assert classes is not None  # a method with "auto" counts the classes when it is made
    choose = choose_momentum if torch.compiler.is_compiling() else _choose_once
    return choose(classes, source_batch_size, batch_size)


_choose_once = lru_cache(maxsize=4096)(choose_momentum)  # a compiled graph cannot use a cache
