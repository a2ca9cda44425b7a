"""How far a student is from its teacher, and how sure a network is. Used by methods/cotta.py.

Logits are (image, class); the losses are means over the images.
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
