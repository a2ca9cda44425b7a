"""A method's own source of random numbers, as part of its memory. Used by cotta and adacontrast."""

from __future__ import annotations

import torch
from torch import Tensor


def first_state(seed: int) -> Tensor:
    """The state of a generator with this seed, as a tensor of bytes on the CPU."""
    return torch.Generator("cpu").manual_seed(seed).get_state()


def generator_at(state: Tensor) -> torch.Generator:
    """A generator that goes on from a state; the state itself stays as it is."""
    generator = torch.Generator("cpu")
    generator.set_state(state.cpu())
    return generator
