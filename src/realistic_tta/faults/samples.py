"""Samples that no camera should send: each fault by name, made in place of good images.

trial.py puts them into a stream; crafted.py has those that are made to do harm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from .crafted import crafted, crafted_to_be_trusted

Fault = Callable[[Tensor, nn.Module, torch.Generator], Tensor]


def not_a_number(good: Tensor, network: nn.Module, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """One pixel of each image is NaN, in one colour."""
    faulty = good.clone()
    faulty[:, 0, 0, 0] = torch.nan
    return faulty


def stuck(good: Tensor, network: nn.Module, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """The first image again and again."""
    return good[:1].expand_as(good).clone()


def constant(
    good: Tensor,
    network: nn.Module,  # noqa: ARG001
    generator: torch.Generator,  # noqa: ARG001
    *,
    value: float,
) -> Tensor:
    """One value everywhere."""
    return torch.full_like(good, value)


def scaled(good: Tensor, network: nn.Module, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """Values a thousand times too large, as of a sensor read in other units."""
    return good * 1000


def noise(good: Tensor, network: nn.Module, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """Every value drawn anew, uniformly from 0 to 1."""
    return torch.rand(good.shape, generator=generator, dtype=good.dtype)


FAULTS: dict[str, Fault] = {
    "nan": not_a_number,
    "stuck": stuck,
    "blank": partial(constant, value=0.0),
    "saturated": partial(constant, value=1.0),
    "scaled": scaled,
    "noise": noise,
    "crafted": partial(crafted, low=0.0, high=1.0),
    "crafted_far": partial(crafted, low=-10.0, high=10.0),
    "crafted_trusted": crafted_to_be_trusted,
}
