"""Weights that follow others slowly, and weights that return to where they came from.

Used by cotta (teacher, restore) and adacontrast (key model). Weights are flat vectors, (number,).
"""

from __future__ import annotations

import torch
from torch import Tensor


def follow(average: Tensor, weights: Tensor, momentum: float) -> Tensor:
    """One step of an exponential moving average.

        momentum * average + (1 - momentum) * weights

    momentum: weight of the past, as CoTTA and MoCo have it; 1.0 never moves.

    >>> follow(torch.ones(1, device="cpu"), torch.zeros(1, device="cpu"), 0.75).item()
    0.75
    """
    return torch.lerp(average, weights, 1 - momentum)


def restore(
    weights: Tensor, source: Tensor, probability: float, generator: torch.Generator
) -> Tensor:
    """CoTTA's stochastic restore: each number returns to the source with the probability."""
    draws = torch.rand(
        weights.shape, generator=generator, device=generator.device, dtype=torch.float32
    )
    return torch.where((draws < probability).to(weights.device), source, weights)
