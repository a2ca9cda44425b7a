"""AdaContrast's losses and pseudo-labels (Chen 2022). Used by methods/adacontrast.py.

Features and keys are (image, feature); labels are (image,); probabilities are (image, class).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


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

    All features are normalised here but the queue's, which are unit vectors: (entry, feature).
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
    features: Tensor, bank_features: Tensor, bank_probabilities: Tensor, filled: Tensor, count: int
) -> Tensor:
    """The mean probabilities of the nearest entries of the bank, by cosine: (image, class).

    bank_features: unit vectors, (entry, feature). filled: how many entries of the bank are in use,
    the first ones; the others hold probabilities of 0, which move no argmax. count: how many of
    the nearest.
    """
    similarities = functional.normalize(features) @ bank_features.T  # (image, entry)
    empty = torch.arange(len(bank_features), device=filled.device) >= filled
    similarities = similarities.masked_fill(empty, -torch.inf)
    nearest = similarities.topk(min(count, len(bank_features)), dim=1).indices
    return bank_probabilities[nearest].mean(dim=1)  # (image, neighbour, class) before


def write(ring: Tensor, position: Tensor, rows: Tensor) -> Tensor:
    """The ring with the rows in the places from position on, round its end; of many, the last.

    >>> ring, rows = torch.zeros(3, device="cpu"), torch.tensor([1.0, 2.0], device="cpu")
    >>> write(ring, torch.tensor(2, device="cpu"), rows).tolist()
    [2.0, 0.0, 1.0]
    """
    skipped = max(0, len(rows) - len(ring))
    places = position + torch.arange(skipped, len(rows), device=ring.device)
    return ring.index_copy(0, places % len(ring), rows[skipped:].to(ring.dtype))
