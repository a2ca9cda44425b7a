"""Adam and SGD as pure updates of one flat vector. Used by trainer.py.

An update returns new weights and a new state and changes nothing, so that a method commits a whole
batch or nothing. Both agree with torch.optim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from realistic_tta.core.adapted_model import State
from realistic_tta.core.settings import Bounds, NonNegative, Probability, Settings

Beta = Annotated[float, Bounds(0, 0.999999)]


@dataclass(frozen=True)
class SGD(Settings):
    """Gradient descent with momentum.

        velocity = momentum * velocity + gradient + weight_decay * weights
        weights  = weights - lr * velocity

    Args:
        lr: the learning rate.
        momentum: the weight of the past velocity.
        nesterov: the step is gradient + momentum * velocity instead.
        weight_decay: the weight of the weights in the gradient.

    >>> weights, gradient = torch.tensor([[1.0], [2.0]], device="cpu")
    >>> sgd = SGD(lr=0.1)
    >>> sgd.update(weights, gradient, sgd.start(weights))[0].item()
    0.800000011920929
    """

    lr: NonNegative
    momentum: Probability = 0.0
    nesterov: bool = False
    weight_decay: NonNegative = 0.0

    def start(self, weights: Tensor) -> State:
        """No velocity."""
        return {"velocity": torch.zeros_like(weights)}

    def update(self, weights: Tensor, gradient: Tensor, state: State) -> tuple[Tensor, State]:
        """One step."""
        if self.weight_decay:
            gradient = gradient.add(weights, alpha=self.weight_decay)
        velocity = (state["velocity"] * self.momentum).add_(gradient)
        step = gradient.add(velocity, alpha=self.momentum) if self.nesterov else velocity
        return weights.add(step, alpha=-self.lr), {"velocity": velocity}


@dataclass(frozen=True)
class Adam(Settings):
    """Steps scaled by the gradient's own average size (Kingma 2015).

        average = beta1 * average + (1 - beta1) * gradient
        squares = beta2 * squares + (1 - beta2) * gradient ** 2
        weights = weights - lr * (average / (1 - beta1 ** updates))
                               / (sqrt(squares / (1 - beta2 ** updates)) + eps)

    Args:
        lr: the learning rate.
        betas: the weights of the past in the average and in the squares.
        eps: is added to the root of the squares.
        weight_decay: the weight of the weights in the gradient, as in torch.optim.Adam.

    >>> weights, gradient = torch.tensor([[1.0], [2.0]], device="cpu")
    >>> adam = Adam(lr=0.1)
    >>> adam.update(weights, gradient, adam.start(weights))[0].item()
    0.8999999761581421
    """

    lr: NonNegative
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0

    def start(self, weights: Tensor) -> State:
        """Averages of 0, no update yet."""
        return {
            "gradient_average": torch.zeros_like(weights),
            "gradient_squares": torch.zeros_like(weights),
            "updates": torch.zeros((), dtype=torch.int64, device=weights.device),
        }

    def update(self, weights: Tensor, gradient: Tensor, state: State) -> tuple[Tensor, State]:
        """One step."""
        if self.weight_decay:
            gradient = gradient.add(weights, alpha=self.weight_decay)
        beta1, beta2 = self.betas
        average = state["gradient_average"].lerp(gradient, 1 - beta1)
        squares = (state["gradient_squares"] * beta2).addcmul_(gradient, gradient, value=1 - beta2)
        updates = state["updates"] + 1
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
