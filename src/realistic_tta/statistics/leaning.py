"""An estimate that leans on what is known longer, as far as chance explains the difference.

Several memories of one quantity lie ready: a long one is exact but old, a short one is new but
uncertain. The estimate starts at the source and goes to each memory in turn, the longest first, and
each time stays behind by the share of the gap that noise alone would make (James and Stein 1961,
positive part). Used by normalization/remembered_statistics.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Estimate(NamedTuple):
    """moments: (2, channel). start_weight: what the start still weighs in them, a number."""

    moments: Tensor
    start_weight: Tensor


def lean(start: Tensor, memories: Tensor, explained: Tensor, scale: Tensor) -> Estimate:
    """From the start to each memory, less the weight that stays behind.

        stay = min(1, explained / gap)         gap = sum of scale * (memory - estimate) ** 2
        estimate = stay * estimate + (1 - stay) * memory

    start: (2, channel). memories: (memory, 2, channel), the longest first. explained: the gap that
    is no sign of a change, (memory,). scale: (2, channel), makes squares comparable.

    >>> start, scale = torch.zeros(2, 1, device="cpu"), torch.ones(2, 1, device="cpu")
    >>> memory = torch.tensor([[[2.0], [0.0]]], device="cpu")
    >>> lean(start, memory, torch.tensor([1.0], device="cpu"), scale).moments.flatten().tolist()
    [1.5, 0.0]
    """
    estimate, weight = start, explained.new_ones(())
    for memory, tolerated in zip(memories.unbind(), explained.unbind(), strict=True):
        distance = estimate - memory  # (2, channel)
        gap = torch.dot((distance * scale).flatten(), distance.flatten())
        stay = (tolerated / gap.clamp_min(_LEAST)).clamp_max(1)
        estimate = torch.addcmul(memory, distance, stay)
        weight = weight * stay
    return Estimate(estimate, weight)


_LEAST = 1e-30  # no gap at all is explained by anything
