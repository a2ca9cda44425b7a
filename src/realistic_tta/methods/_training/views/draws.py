"""Random draws of the views, from a method's own generator.

All are drawn on the generator's device, the CPU, whatever the images are on: the host then knows
what to do without waiting for a device, and every device sees the same views.
"""

from __future__ import annotations

import torch
from torch import Tensor


def uniform(low: float, high: float, generator: torch.Generator, count: int) -> Tensor:
    """(count,) numbers between low and high."""
    unit = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float32)
    return low + (high - low) * unit


def chosen(probability: float, generator: torch.Generator, count: int) -> Tensor:
    """(count,) truth values, each true with the probability."""
    return uniform(0, 1, generator, count) < probability


def orders(length: int, generator: torch.Generator, count: int) -> Tensor:
    """(count, length): in each row the numbers below length, every order as likely."""
    unit = torch.rand(
        count, length, generator=generator, device=generator.device, dtype=torch.float32
    )
    return unit.argsort(dim=1)


def normal(like: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    """Noise of the shape, device and type of a tensor; the same numbers whichever those are."""
    noise = torch.randn(
        like.shape, generator=generator, device=generator.device, dtype=torch.float32
    )
    return noise.mul_(deviation).to(like)
