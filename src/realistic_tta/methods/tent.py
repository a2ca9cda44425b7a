"""tent: entropy minimization on the parameters of normalization layers (Wang 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.report import Report
from realistic_tta.functional.entropy import entropy
from realistic_tta.layers.adaptive_layers import AdaptiveLayers

from ._training.optimizers import SGD, Adam
from ._training.trainer import Trainer, TrainingSettings, normalization_layers, train_steps


@dataclass(frozen=True)
class Tent(TrainingSettings):
    """The hyperparameters of tent: those of every method that trains.

    >>> from realistic_tta import SGD, Tent, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), Tent(optimizer=SGD(lr=1e-3)))
    """

    optimizer: Adam | SGD = Adam(lr=1e-3)  # Wang 2021, CIFAR, at batch size 200

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {},
        # Wang 2021, at batch size 64
        "imagenet_c": {"optimizer": SGD(lr=2.5e-4, momentum=0.9, nesterov=True)},
    }


class TentModel(AdaptedModel):
    """Lowers the mean entropy of the predictions.

        loss = mean of entropy(logits)

    The prediction is from before the step.
    """

    name = "tent"
    settings_type = Tent
    _settings: Tent

    def __init__(self, model: nn.Module, settings: Tent) -> None:
        trained = normalization_layers(model, self.name)
        model, layers = AdaptiveLayers.replace(model, self.name, required=False, needs_source=False)
        super().__init__(model, settings)
        self._layers = layers
        self._trainer = Trainer(model, layers, trained, settings.optimizer)
        self._register_state()

    def _initial_state(self) -> State:
        return self._trainer.initial_state()

    def _predict(self, batch: Batch) -> Prediction:
        state = self._initial_state() if self._settings.episodic else self._state()
        outputs, state = train_steps(self._learn, batch, state, self._settings)
        return self._after(outputs, **state)

    def _learn(self, batch: Batch, state: State) -> tuple[Any, State]:
        """Predict; step down the gradient of the mean entropy."""
        forward = self._trainer.forward(batch, state["weights"])
        loss = entropy(forward.logits).mean()
        after = self._trainer.step(state, forward.gradient(loss))
        return forward.outputs, after | self._trainer.measured(forward, state)

    def freeze(self) -> nn.Module:
        """A plain copy of the model with the trained weights and the last batch's statistics."""
        return self._trainer.freeze(self._state(), self._state()["weights"])

    def report(self) -> Report:
        """Every adapted layer, and the parameters that are trained."""
        return self._trainer.report(self.name, self._state())
