"""Parameters, optimizer and BatchNorm layers of a method that trains. tent.py is a short example.

A method writes `_learn(batch, state)`, a function of the batch and of everything known so far,
which returns the outputs and the next state and changes nothing. `train_steps` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from realistic_tta.core.adapted_model import State, run_model
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import find_logits, map_tensors, widen, without_gradient
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Count, Seed, Settings
from realistic_tta.core.target_state import (
    freeze_target,
    initial_target,
    target_after,
    target_report,
)
from realistic_tta.errors import ModelError, NonFiniteError
from realistic_tta.functional.channel_statistics import interpolate
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.replacement import affine_layers, describe_affine, layers_with_parameters
from realistic_tta.layers.rules import StatisticsRule, TrainingStatistics, UnrecordedStatistics

from .optimizers import SGD, Adam
from .trained_parameters import TrainedParameters


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """The hyperparameters of every method that trains.

    optimizer: Adam(...) or SGD(...) of realistic_tta.
    steps: how often to learn from a batch; the prediction is that of the last time.
    episodic: forget everything before each batch.
    """

    optimizer: Adam | SGD = Adam(lr=1e-3)
    steps: Count = 1
    episodic: bool = False

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}


@dataclass(frozen=True)
class SeededTrainingSettings(TrainingSettings):
    """The same with a seed for everything that is drawn at random."""

    seed: Seed = 0


@dataclass(frozen=True)
class Forward:
    """One forward pass with given weights; its graph is kept for the gradient."""

    outputs: Any
    weights: Tensor
    rules: Sequence[StatisticsRule]

    @property
    def logits(self) -> Tensor:
        """(image, class), in float32 or better."""
        return widen(find_logits(self.outputs))

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of the loss with respect to the weights, (number,)."""
        if not loss.requires_grad:
            raise ModelError(
                "no gradient reaches the model's output: it is detached, or made under no_grad"
            )
        (found,) = torch.autograd.grad(loss, self.weights, materialize_grads=True)
        return found


class Trainer:
    """Trains parameters of a model whose BatchNorm layers use batch statistics.

    Its state: `weights`, the trained parameters as one vector in float32 or better; the state of
    the optimizer; and the target statistics of core/target_state.py. The model's own parameters
    keep their source values.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: AdaptiveLayers,
        trained_layers: Iterable[tuple[str, nn.Module]],
        optimizer: Adam | SGD,
    ) -> None:
        self.model, self.layers, self.optimizer = model, layers, optimizer
        self.required_gradients = [own.requires_grad for own in model.parameters()]
        model.requires_grad_(
            requires_grad=False
        )  # parameters that are not trained cost no backward
        self.parameters = TrainedParameters(trained_layers)

    def initial_state(self, *, from_source: bool = False) -> State:
        """The state before the first batch."""
        weights = self.parameters.source_weights()
        target = initial_target(self.layers, from_source=from_source)
        return {**target, "weights": weights, **self.optimizer.start(weights)}

    def forward(
        self, batch: Batch, weights: Tensor, rules: Sequence[StatisticsRule] | None = None
    ) -> Forward:
        """One pass with these weights; by default on batch statistics, which are recorded."""
        weights = weights.detach().requires_grad_(torch.is_grad_enabled())
        rules = self.batch_statistics() if rules is None else rules
        with self.parameters.replaced(weights), self.layers.following(rules):
            outputs = run_model(self.model, batch)
        return Forward(outputs, weights, rules)

    def batch_statistics(self) -> list[TrainingStatistics]:
        """Rules: every BatchNorm uses the batch's own statistics."""
        return [TrainingStatistics() for _ in self.layers.layers]

    def unrecorded(self) -> list[UnrecordedStatistics]:
        """The same, for a pass whose statistics are not kept."""
        return [UnrecordedStatistics() for _ in self.layers.layers]

    def step(self, state: State, gradient: Tensor) -> State:
        """The state after one step of the optimizer."""
        weights, memory = self.optimizer.update(state["weights"], gradient, state)
        return state | {"weights": weights} | memory

    def measured(self, forward: Forward, state: State) -> State:
        """The target statistics after a pass, for `freeze` and `report`."""
        return target_after(self.layers, forward.rules, state, source_weight=0.0)

    def freeze(self, state: State, weights: Tensor) -> nn.Module:
        """A plain copy of the original model: these weights, the last batch's statistics."""
        plain = freeze_target(self.model, self.layers, state, interpolate)
        for own, needed in zip(plain.parameters(), self.required_gradients, strict=True):
            own.requires_grad_(needed)
        values = self.parameters.split(weights)
        with torch.no_grad():
            for name, value in zip(self.parameters.names, values, strict=True):
                plain.get_parameter(name).copy_(value)
        return plain

    def report(self, method: str, state: State) -> Report:
        """Every adapted layer, and the parameters that are trained."""
        return target_report(method, self.model, self.layers, state, trained=self.parameters.names)


def train_steps(
    learn: Callable[[Batch, State], tuple[Any, State]],
    batch: Batch,
    state: State,
    settings: TrainingSettings,
) -> tuple[Any, State]:
    """Learns from a batch as often as the settings say; returns the outputs and the new state."""
    args, kwargs = map_tensors(without_gradient, (batch.args, dict(batch.kwargs)))
    batch = Batch(args, kwargs, batch.size)
    outputs = None
    with torch.enable_grad():
        for _ in range(settings.steps):
            outputs, state = learn(batch, state)
    if not state["weights"].is_meta and not torch.isfinite(state["weights"].sum()):
        raise NonFiniteError(
            "the optimizer step would make a weight NaN or Inf: values overflow in the model or "
            "its gradient. Use a wider dtype or a smaller lr. Nothing was changed"
        )
    return map_tensors(without_gradient, outputs), state


def normalization_layers(model: nn.Module, method: str) -> list[tuple[str, nn.Module]]:
    """The layers that tent and its relatives train; raises if there are none."""
    layers = list(affine_layers(model))
    if not layers:
        raise ModelError(
            f"{method} trains the weights and biases of normalization layers, and the model has "
            f'none: it has {describe_affine(model)}. Use method="source" or method="lame"'
        )
    return layers


def all_layers(model: nn.Module, method: str) -> list[tuple[str, nn.Module]]:
    """All layers with parameters of their own; raises if there are none."""
    layers = list(layers_with_parameters(model))
    if not layers:
        raise ModelError(f"{method} trains all parameters of a model, and this one has none")
    return layers


def generator_from(state: Tensor) -> torch.Generator:
    """A generator in the given state; the state itself is not changed. state: (byte,)."""
    generator = torch.Generator("cpu")
    generator.set_state(state.cpu())
    return generator
