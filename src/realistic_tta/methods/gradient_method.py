"""What the methods that train share: parameters, optimiser, and one commit a batch.

A method writes `learn`, a function of the batch and of everything known so far (its memory), which
returns the output and what is known then. `predict` calls it and stores the result with one
`remember`: a batch counts whole or not at all. tent.py is the shortest example.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from realistic_tta.errors import ModelError, NonFiniteError, SettingError
from realistic_tta.layers.network import affine_layers, describe_affine
from realistic_tta.layers.statistics_rules import (
    StatisticsRule,
    TrainingStatistics,
    UnrecordedStatistics,
)

from .batch import Batch
from .batch_norm_method import BatchNormMethod
from .checks import check_count
from .optimizers import SGD, Adam, Memory
from .outputs import find_logits, map_tensors, widen, without_gradient
from .report import Report
from .ring import NewRows, written
from .trained_parameters import TrainedParameters


@dataclass(frozen=True)
class TrainingSettings:
    """optimizer: Adam(...) or SGD(...) of methods/optimizers.py.
    steps: how often a batch is learnt from; the prediction is that of the last time.
    episodic: forget everything before each batch.
    """

    optimizer: Adam | SGD = Adam(lr=1e-3)
    steps: int = 1
    episodic: bool = False

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, Adam | SGD):
            raise SettingError(
                f"optimizer is {self.optimizer!r}; expected Adam(...) or SGD(...), "
                "for instance realistic_tta.SGD(lr=1e-3, momentum=0.9)"
            )
        check_count("steps", self.steps)
        if not isinstance(self.episodic, bool):
            raise SettingError(f"episodic is {self.episodic!r}; expected True or False")


@dataclass(frozen=True)
class Pass:
    """One forward of the network with given weights, its graph still there."""

    outputs: Any
    weights: Tensor
    rules: Sequence[StatisticsRule]

    @property
    def logits(self) -> Tensor:
        """(image, class), in float32 or better."""
        return widen(find_logits(self.outputs))

    def gradient(self, loss: Tensor) -> Tensor:
        """Of the loss, a single number, by the weights: (number,)."""
        return gradient(loss, self.weights)


def gradient(loss: Tensor, weights: Tensor) -> Tensor:
    """Of the loss, a single number, by the weights that the network ran with: (number,)."""
    if not loss.requires_grad:
        raise ModelError(
            "no gradient reaches the network's output: it is detached, or made under no_grad"
        )
    (found,) = torch.autograd.grad(loss, weights, materialize_grads=True)
    return found


class GradientMethod(BatchNormMethod):
    """A method that trains parameters of the network, its BatchNorm layers on batch statistics.

    Its memory, all in buffers: `weights`, the trained parameters as one vector in float32 or
    better; the optimiser's; what a method adds in `at_start`. The network's own parameters stay
    at their source values.
    """

    needs_batch_norm = False
    needs_source = False
    predicts_with: ClassVar[str] = "weights"  # which of its vectors `freeze` takes
    settings: TrainingSettings

    def __init__(self, network: nn.Module, settings: TrainingSettings) -> None:
        super().__init__(network, settings)
        self.had_gradients = [own.requires_grad for own in self.network.parameters()]
        self.network.requires_grad_(requires_grad=False)  # what is not trained costs no backward
        self.trained = TrainedParameters(self.layers_to_train())
        start = self.at_start()
        self.memory_names = list(start)
        for name, value in start.items():
            self.register_buffer(name, value)

    @abstractmethod
    def learn(self, batch: Batch, memory: Memory) -> tuple[Any, Mapping[str, Tensor | NewRows]]:
        """The output for the batch, and the memory after it; changes nothing, gradients are on."""

    def layers_to_train(self) -> Iterable[tuple[str, nn.Module]]:
        """Layers whose own parameters are trained: those that normalise, unless said otherwise."""
        layers = list(affine_layers(self.network))
        if not layers:
            raise ModelError(
                f"{self.name} trains the weights and biases of normalisation layers, and the "
                f"network has none: it has {describe_affine(self.network)}. "
                'Use method="source" or method="lame"'
            )
        return layers

    def at_start(self) -> Memory:
        """The memory before the first batch."""
        weights = self.trained.source_weights()
        return {"weights": weights, **self.settings.optimizer.start(weights)}

    def predict(self, batch: Batch) -> Any:
        """Learns from the batch, as often as the settings say, and commits all of it at once."""
        after: Mapping[str, Tensor | NewRows]
        after = {name: self.get_buffer(name) for name in self.memory_names}
        with torch.inference_mode(False), torch.enable_grad():  # noqa: FBT003 - for dynamo
            if self.settings.episodic:
                after = self.at_start()
            args, kwargs = map_tensors(without_gradient, (batch.args, dict(batch.kwargs)))
            batch = Batch(args, kwargs, batch.size)
            for _ in range(self.settings.steps):
                outputs, after = self.learn(batch, written(after))
        self._check_finite(after["weights"])
        self.remember(**after)
        return map_tensors(without_gradient, outputs)

    def run_trained(
        self, batch: Batch, weights: Tensor, rules: Sequence[StatisticsRule] | None = None
    ) -> Pass:
        """One forward with these weights; BatchNorms on the batch's own statistics, or by rules."""
        weights = weights.detach().requires_grad_()  # where the gradient ends
        rules = rules or self.batch_rules()
        with self.trained.replaced(weights):
            outputs = self.run_with(batch, rules)
        return Pass(outputs, weights, rules)

    def batch_rules(self) -> list[TrainingStatistics]:
        """Every BatchNorm on the batch's own statistics."""
        return [TrainingStatistics() for _ in self.layers]

    def unrecorded(self) -> list[UnrecordedStatistics]:
        """The same, for a pass of which `statistics_of` is not asked."""
        return [UnrecordedStatistics() for _ in self.layers]

    def descend(self, memory: Memory, gradient: Tensor) -> Memory:
        """The memory after one step of the optimiser."""
        weights, state = self.settings.optimizer.update(memory["weights"], gradient, memory)
        return memory | {"weights": weights} | state

    def statistics_of(self, forward: Pass) -> Memory:
        """What the BatchNorm layers measured in a pass, kept for `freeze` and `report`."""
        target = self.measured(forward.rules)
        return {
            "target_mean": target.mean,
            "target_variance": target.variance,
            "source_weight": self.source_weight_after(forward.rules),
        }

    def reset(self) -> None:
        """Forgets everything seen, weights and optimiser too."""
        super().reset()
        for name, value in self.at_start().items():
            self.get_buffer(name).copy_(value)

    def freeze(self) -> nn.Module:
        """A plain copy of the original network: trained weights, the last batch's statistics."""
        plain = super().freeze()
        for own, needed in zip(plain.parameters(), self.had_gradients, strict=True):
            own.requires_grad_(needed)
        values = self.trained.cut(self.get_buffer(self.predicts_with))
        with torch.no_grad():
            for name, value in zip(self.trained.names, values, strict=True):
                plain.get_parameter(name).copy_(value)
        return plain

    def report(self) -> Report:
        """As every method that replaces statistics, and the parameters that are trained."""
        report = super().report()
        trained = {name.rpartition(".")[0] for name in self.trained.names}
        left = tuple(layer for layer in report.left_alone if layer.name not in trained)
        return dataclasses.replace(report, left_alone=left, trained=tuple(self.trained.names))

    def _check_finite(self, weights: Tensor | NewRows) -> None:
        assert isinstance(weights, Tensor)
        if not weights.is_meta and not torch.isfinite(weights.sum()):
            raise NonFiniteError(
                f"{self.name}'s step would make a weight NaN or Inf: values overflow in the "
                "network or its gradient. Use a wider type or a smaller lr. Nothing was changed"
            )
