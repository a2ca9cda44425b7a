"""Adam and SGD as pure updates of one flat vector. Used by methods/gradient_method.py.

An update returns new weights and a new memory and changes nothing, so that a method commits a
whole batch at once or not at all. The memory is a few tensors that the method keeps as buffers.
Both agree with torch.optim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from realistic_tta.errors import SettingError

from .checks import check_number

Memory = dict[str, Tensor]  # what a method knows between batches, by the names of its buffers


class Optimizer(Protocol):
    """Turns a gradient into a step."""

    def start(self, weights: Tensor) -> Memory:
        """What it remembers before the first step."""
        ...

    def update(self, weights: Tensor, gradient: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Weights and memory after one step against the gradient; all vectors are (number,)."""
        ...


@dataclass(frozen=True)
class SGD:
    """Gradient descent with momentum.

        velocity = momentum * velocity + gradient + weight_decay * weights
        weights  = weights - lr * velocity

    nesterov: the step is gradient + momentum * velocity instead.

    >>> weights, gradient = torch.tensor([[1.0], [2.0]], device="cpu")
    >>> sgd = SGD(lr=0.1)
    >>> sgd.update(weights, gradient, sgd.start(weights))[0].item()
    0.800000011920929
    """

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_number("lr", self.lr, low=0)
        check_number("momentum", self.momentum, low=0, high=1)
        check_number("weight_decay", self.weight_decay, low=0)
        if not isinstance(self.nesterov, bool):
            raise SettingError(f"nesterov is {self.nesterov!r}; expected True or False")

    def start(self, weights: Tensor) -> Memory:
        """No velocity."""
        return {"velocity": torch.zeros_like(weights)}

    def update(self, weights: Tensor, gradient: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """One step."""
        if self.weight_decay:
            gradient = gradient.add(weights, alpha=self.weight_decay)
        velocity = (memory["velocity"] * self.momentum).add_(gradient)
        step = gradient.add(velocity, alpha=self.momentum) if self.nesterov else velocity
        return weights.add(step, alpha=-self.lr), {"velocity": velocity}


@dataclass(frozen=True)
class Adam:
    """Steps scaled by the gradient's own average size (Kingma 2015).

        average = beta1 * average + (1 - beta1) * gradient
        squares = beta2 * squares + (1 - beta2) * gradient ** 2
        weights = weights - lr * (average / (1 - beta1 ** updates))
                               / (sqrt(squares / (1 - beta2 ** updates)) + eps)

    weight_decay: is added to the gradient, as torch.optim.Adam does.
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lr", "eps", "weight_decay"):
            check_number(name, getattr(self, name), low=0)
        if not isinstance(self.betas, tuple) or len(self.betas) != 2:
            raise SettingError(f"betas is {self.betas!r}; expected two numbers")
        for beta in self.betas:
            check_number("betas", beta, low=0, high=0.999999)

    def start(self, weights: Tensor) -> Memory:
        """Averages of 0, no update yet."""
        return {
            "gradient_average": torch.zeros_like(weights),
            "gradient_squares": torch.zeros_like(weights),
            "updates": torch.zeros((), dtype=torch.int64, device=weights.device),
        }

    def update(self, weights: Tensor, gradient: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """One step."""
        if self.weight_decay:
            gradient = gradient.add(weights, alpha=self.weight_decay)
        beta1, beta2 = self.betas
        average = memory["gradient_average"].lerp(gradient, 1 - beta1)
        squares = (memory["gradient_squares"] * beta2).addcmul_(gradient, gradient, value=1 - beta2)
        updates = memory["updates"] + 1
        size = (squares / _one_minus_power(beta2, updates, weights)).sqrt_().add_(self.eps)
        step = (average / size).mul_(self.lr / _one_minus_power(beta1, updates, weights))
        return weights - step, {
            "gradient_average": average,
            "gradient_squares": squares,
            "updates": updates,
        }


def _one_minus_power(beta: float, updates: Tensor, like: Tensor) -> Tensor:
    """1 - beta ** updates, without the digits that the difference would lose."""
    if beta == 0:
        return torch.ones_like(updates, dtype=like.dtype)
    return -torch.expm1(updates.to(like.dtype) * math.log(beta))
