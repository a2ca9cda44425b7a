"""Losses and pseudo-labels of cotta (Wang 2022) and adacontrast (Chen 2022).

Logits and probabilities are (image, class), features and keys (image, feature), labels (image,).
The losses are means over the images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def soft_cross_entropy(logits: Tensor, target_logits: Tensor) -> Tensor:
    """Cross-entropy with the softmax of other logits as the target.

    - mean over images of the sum over classes of softmax(target_logits) * log_softmax(logits)
    """
    return functional.cross_entropy(logits, target_logits.softmax(dim=1))


def symmetric_cross_entropy(logits: Tensor, other_logits: Tensor) -> Tensor:
    """The mean of both directions, each the other's target: CoTTA's loss on ImageNet."""
    there = soft_cross_entropy(logits, other_logits)
    back = soft_cross_entropy(other_logits, logits)
    return (there + back) / 2


def confidence(logits: Tensor) -> Tensor:
    """The largest probability of each image, averaged over the batch.

    >>> confidence(torch.zeros(3, 4, device="cpu")).item()
    0.25
    """
    return torch.softmax(logits, dim=1).amax(dim=1).mean()


def contrast(
    queries: Tensor,
    keys: Tensor,
    labels: Tensor,
    *,
    queue_keys: Tensor,
    queue_labels: Tensor,
    temperature: float,
) -> Tensor:
    """Each query should be nearer to its own key than to keys of other labels (Eq. 5).

        similarity = cosine / temperature
        loss = mean of log(exp(own) + sum over others of exp(other)) - own
        others: the keys of the queue with another label than the query's

    All features are normalized here but the queue's, which are unit vectors: (entry, feature).
    """
    queries, keys = functional.normalize(queries), functional.normalize(keys)
    own = (queries * keys).sum(dim=1, keepdim=True)  # (image, 1)
    others = queries @ queue_keys.T  # (image, entry)
    others = others.masked_fill(labels[:, None] == queue_labels, -torch.inf)
    similarities = torch.cat([own, others], dim=1) / temperature
    return functional.cross_entropy(similarities, torch.zeros_like(labels))


def concentration(logits: Tensor) -> Tensor:
    """How one-sided the batch's predictions are together: sum(p * log(p + 1e-8)) (Eq. 8).

    p: the mean softmax of the batch, (class,). Least, -log(classes), if all classes are as likely.
    """
    p = logits.softmax(dim=1).mean(dim=0)
    return (p * torch.log(p + 1e-8)).sum()


def nearest_probabilities(
    features: Tensor, bank_features: Tensor, bank_probabilities: Tensor, count: int
) -> Tensor:
    """The mean probabilities of the nearest entries of the bank, by cosine: (image, class).

    bank_features: unit vectors, (entry, feature). count: how many of the nearest; all, if the bank
    has fewer.
    """
    similarities = functional.normalize(features) @ bank_features.T  # (image, entry)
    nearest = similarities.topk(min(count, len(bank_features)), dim=1).indices
    return bank_probabilities[nearest].mean(dim=1)  # (image, neighbor, class) before
