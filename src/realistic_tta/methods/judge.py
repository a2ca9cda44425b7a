"""Which of two networks is right more often on the same images? A judgement without labels.

Used by guard.py to set a method against the network it was made from. Chosen on four corruptions
that no benchmark uses; docs/reliability.md has the figures.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .entropy import entropy
from .outputs import widen

DIVERSITY = 0.25  # of 0, 0.25, 0.5, 0.75 and 1 the one that classes in sorted order do not deceive
_TINY = 1e-12


def advantage(adapted: Tensor, source: Tensor) -> float:
    """By how much the adapted logits are the better ones, in nats; below 0 the source's are.

        surer = mean entropy of the source's predictions - mean entropy of the adapted ones
        wider = entropy of the mean adapted prediction - entropy of the source's mean prediction
        advantage = surer + min(wider, DIVERSITY * wider)

    All after `at_scale_of`: (image, class) each. Predictions that fall into fewer classes count in
    full against a method: so it collapses. Those that spread over more count only in part for it:
    the source may be partial to a class, but it may also be right that all images are of one.

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
    return float(surer + torch.minimum(wider, DIVERSITY * wider))


def at_scale_of(reference: Tensor, logits: Tensor) -> Tensor:
    """The logits, stretched until they differ among the classes as much as the reference does.

        logits * spread(reference) / spread(logits),   spread: mean of the images' deviations

    A method that makes entropy small stretches its logits, one that has seen few images has hardly
    any: neither says how often it is right.
    """
    stretch = spread(reference) / spread(logits).clamp_min(_TINY)
    return logits * stretch


def spread(logits: Tensor) -> Tensor:
    """Standard deviation among the classes, mean over the images: (image, class) to ().

    >>> spread(torch.tensor([[1.0, -1.0], [3.0, -3.0]], device="cpu")).item()
    2.0
    """
    return logits.std(dim=1, correction=0).mean()


def entropy_of_mean(logits: Tensor) -> Tensor:
    """Of the mean prediction, in nats: ln(classes) if all come equally often, 0 if one does."""
    return torch.special.entr(logits.softmax(dim=1).mean(dim=0)).sum()
