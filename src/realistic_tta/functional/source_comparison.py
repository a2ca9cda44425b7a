"""Compares two models on the same images without labels. Used by wrappers/guard.py.

The constants were chosen on four corruptions that no benchmark uses.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .entropy import entropy

# More diverse predictions count in full if the source shows that labels are mixed. Otherwise they
# may be wrong, as on a sorted stream, and count with a small weight.
WEIGHT_IF_FEW = 0.15
MANY = 0.75  # of the largest entropy: that of the source's mean prediction where labels are mixed
RUN_STANDARD_ERRORS = 1.5  # above which labels are taken to come in runs
TINY = 1e-12


def advantage(adapted: Tensor, source: Tensor) -> float:
    """How much better the adapted logits are, in nats; below 0 the source's are better.

        confidence = mean entropy of the source's predictions - mean entropy of the adapted ones
        diversity  = entropy of the mean adapted prediction - entropy of the mean source prediction
        advantage  = confidence + credited(diversity)

    Both are (image, class), in the order of the stream, and compared at the same scale. Less
    diverse predictions count in full against a method, because that is how methods collapse. More
    diverse ones count for it in full only if the source shows that labels are mixed.

    >>> logits = torch.eye(4, device="cpu") * 9
    >>> advantage(logits, logits)
    0.0
    >>> advantage(logits[:1].repeat(4, 1), logits) < 0 < advantage(logits, logits[:1].repeat(4, 1))
    True
    """
    adapted = rescale(adapted, source)
    confidence = entropy(source).mean() - entropy(adapted).mean()
    diversity = entropy_of_mean(adapted) - entropy_of_mean(source)
    return float(confidence + credited(diversity, source))


def credited(diversity: Tensor, source: Tensor) -> Tensor:
    """The part of a difference in diversity that counts, in nats.

        credited = diversity           if it is below 0, or if the source's labels are mixed
                   0.15 * diversity    otherwise

    Labels are mixed if they do not come in runs, and if the source's mean prediction has more than
    three quarters of the largest entropy that so many classes and images can have.

    >>> mixed, more = torch.eye(4, device="cpu") * 9, torch.tensor(1.0)
    >>> [round(credited(more, each).item(), 2) for each in (mixed, mixed[:1].repeat(4, 1))]
    [1.0, 0.15]
    """
    many = float(entropy_of_mean(source)) > MANY * math.log(min(source.shape))
    weight = 1 if many and not comes_in_runs(source) else WEIGHT_IF_FEW
    return torch.minimum(diversity, weight * diversity)


def rescale(logits: Tensor, reference: Tensor) -> Tensor:
    """The logits, scaled to the spread of the reference.

    A method that minimizes entropy stretches its logits, which does not make it right more often.
    """
    return logits * (spread(reference) / spread(logits).clamp_min(TINY))


def spread(logits: Tensor) -> Tensor:
    """The standard deviation over the classes, as the median over the images: ().

    >>> spread(torch.tensor([[1.0, -1.0], [3.0, -3.0], [900.0, -900.0]], device="cpu")).item()
    3.0
    """
    deviations: Tensor = logits.std(dim=1, correction=0)
    return deviations.median()


def information(logits: Tensor) -> float:
    """Mutual information of image and prediction: entropy of the mean - mean entropy, in nats.

    >>> logits = torch.eye(4, device="cpu") * 99
    >>> round(information(logits) / math.log(4), 3), information(logits[:1].repeat(4, 1))
    (1.0, 0.0)
    """
    return float(entropy_of_mean(logits) - entropy(logits).mean())


def entropy_of_mean(logits: Tensor) -> Tensor:
    """The entropy of the mean prediction, in nats."""
    mean = logits.softmax(dim=1).mean(dim=0)  # (class,)
    entropies: Tensor = torch.special.entr(mean)
    return entropies.sum()


def comes_in_runs(logits: Tensor) -> bool:
    """Whether neighbors in the stream have the same class more often than any two images.

        neighbors = mean of p[i] . p[i + 1],   any_two = mean of p[i] . p[j] over all i != j
        neighbors - any_two > 1.5 * sqrt(any_two * (1 - any_two) / images)

    >>> logits = torch.eye(4, device="cpu") * 9
    >>> comes_in_runs(logits.repeat(8, 1)), comes_in_runs(logits.repeat_interleave(8, dim=0))
    (False, True)
    >>> comes_in_runs(logits[:1].repeat(32, 1))
    False
    """
    p = logits.softmax(dim=1)
    images, total = len(p), p.sum(dim=0)
    any_two = (total.square().sum() - p.square().sum()) / (images * (images - 1))
    neighbors = (p[1:] * p[:-1]).sum(dim=1).mean()
    standard_error = (any_two * (1 - any_two)).clamp_min(0).div(images).sqrt()
    return bool(neighbors - any_two > RUN_STANDARD_ERRORS * standard_error)
