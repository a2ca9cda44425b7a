"""How unsure a prediction is: what tent, eta and sar make smaller."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Entropy of each image's softmax, natural logarithm: (image, class) to (image,).

        entropy = - sum over classes of p * log(p),   p = softmax(logits)

    >>> round(entropy(torch.zeros(1, 4, device="cpu")).item() / math.log(4), 6)
    1.0
    """
    log_p = torch.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def threshold(fraction: float, logits: Tensor) -> float:
    """The entropy below which a prediction counts as reliable: fraction * ln(classes)."""
    return fraction * math.log(logits.shape[1])
