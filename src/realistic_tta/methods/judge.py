"""Which of two networks is right more often on the same images? A judgement without labels.

Used by guard.py to set a method against the network it was made from. Chosen on four corruptions
that no benchmark uses; docs/reliability.md has the figures.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .entropy import entropy
from .outputs import widen

# What more diversity may count for a method at most, as parts of ln(classes). While the source
# names few classes it may be right, as where they come in sorted order; if it names many, it is not
# a single run of one class, and what it lacks is its own fault.
CREDIT_IF_FEW, CREDIT_IF_MANY = 0.1, 0.3
MANY = 0.5  # of ln(classes): entropy of the source's mean prediction
RUNS = 1.5  # standard errors above which classes come in runs
_TINY = 1e-12


def advantage(adapted: Tensor, source: Tensor) -> float:
    """By how much the adapted logits are the better ones, in nats; below 0 the source's are.

        surer = mean entropy of the source's predictions - mean entropy of the adapted ones
        wider = entropy of the mean adapted prediction - entropy of the source's mean prediction
        advantage = surer + min(wider, credit(source))

    All after `at_scale_of`; (image, class) each, in the order in which the images came. Predictions
    that fall into fewer classes count in full against a method: so it collapses. Those that spread
    over more count for it, as the source may be partial to a class; but only so far (`credit`).

    >>> told = torch.eye(4, device="cpu") * 9
    >>> advantage(told, told)
    0.0
    >>> advantage(told[:1].repeat(4, 1), told) < 0 < advantage(told, told[:1].repeat(4, 1))
    True
    """
    adapted, source = widen(adapted), widen(source)
    adapted = at_scale_of(source, adapted)
    surer = entropy(source).mean() - entropy(adapted).mean()
    wider = entropy_of_mean(adapted) - entropy_of_mean(source)
    return float(surer + wider.clamp_max(credit(source)))


def credit(source: Tensor) -> float:
    """What more diversity than the source's may count for at most, in nats.

    Nothing where the source's predictions come in runs: there it is right that few classes do.

    >>> many = torch.eye(4, device="cpu") * 9
    >>> round(credit(many) / math.log(4), 3), round(credit(many[:1].repeat(4, 1)) / math.log(4), 3)
    (0.3, 0.1)
    """
    if in_runs(source):
        return 0.0
    possible = math.log(source.shape[1])
    many = float(entropy_of_mean(source)) > MANY * possible
    return (CREDIT_IF_MANY if many else CREDIT_IF_FEW) * possible


def at_scale_of(reference: Tensor, logits: Tensor) -> Tensor:
    """The logits, stretched until they differ among the classes as much as the reference does.

        logits * spread(reference) / spread(logits),   spread: median of the images' deviations

    A method that makes entropy small stretches its logits, one that has seen few images has hardly
    any: neither says how often it is right.
    """
    stretch = spread(reference) / spread(logits).clamp_min(_TINY)
    return logits * stretch


def spread(logits: Tensor) -> Tensor:
    """Standard deviation among the classes, median of the images: (image, class) to ().

    The median, because one image with values off the scale would outweigh all others.

    >>> spread(torch.tensor([[1.0, -1.0], [3.0, -3.0], [900.0, -900.0]], device="cpu")).item()
    3.0
    """
    deviations: Tensor = logits.std(dim=1, correction=0)
    return deviations.median()


def information(logits: Tensor) -> float:
    """What the predictions tell of the images, in nats: entropy of their mean - their mean entropy.

    Nothing if all images get the same prediction, however sure it is.

    >>> told = torch.eye(4, device="cpu") * 99
    >>> round(information(told) / math.log(4), 3), information(told[:1].repeat(4, 1))
    (1.0, 0.0)
    """
    return float(entropy_of_mean(logits) - entropy(logits).mean())


def entropy_of_mean(logits: Tensor) -> Tensor:
    """Of the mean prediction, in nats: ln(classes) if all come equally often, 0 if one does."""
    mean = logits.softmax(dim=1).mean(dim=0)  # (class,)
    entropies: Tensor = torch.special.entr(mean)
    return entropies.sum()


def in_runs(logits: Tensor) -> bool:
    """Whether images that follow each other are of one class more often than any two are.

        neighbours = mean of p[i] . p[i + 1],   any_two = mean of p[i] . p[j] over all i != j
        neighbours - any_two > RUNS * sqrt(any_two * (1 - any_two) / images)

    A source that is partial to one class is so everywhere: that makes no runs.

    >>> told = torch.eye(4, device="cpu") * 9
    >>> in_runs(told.repeat(8, 1)), in_runs(told.repeat_interleave(8, dim=0))
    (False, True)
    >>> in_runs(told[:1].repeat(32, 1))
    False
    """
    p = logits.softmax(dim=1)
    images, total = len(p), p.sum(dim=0)
    any_two = (total.square().sum() - p.square().sum()) / (images * (images - 1))
    neighbours = (p[1:] * p[:-1]).sum(dim=1).mean()
    error = (any_two * (1 - any_two)).clamp_min(0).div(images).sqrt()
    return bool(neighbours - any_two > RUNS * error)
