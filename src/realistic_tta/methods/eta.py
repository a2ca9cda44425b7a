"""eta: tent on reliable and non-redundant images, weighted (Niu 2022).

It is EATA without the Fisher term, which needs source images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.classes import count_classes
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Count, NonNegative, Probability
from realistic_tta.errors import ModelError
from realistic_tta.functional.entropy import entropy, threshold
from realistic_tta.layers.adaptive_layers import AdaptiveLayers

from ._training.optimizers import SGD, Adam
from ._training.trainer import Trainer, TrainingSettings, normalization_layers, train_steps


@dataclass(frozen=True)
class Eta(TrainingSettings):
    """The hyperparameters of eta, beside those of every method that trains.

    Args:
        entropy_threshold: a prediction is reliable below this fraction of ln(classes).
        margin: a prediction is redundant if its cosine with the running one is not below this.
        decay: the weight of the past in the running prediction.
        classes: the number of classes; by default the outputs of the last Linear layer.

    >>> from realistic_tta import Eta, adapt
    >>> adapted = adapt(nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3)), Eta(margin=0.1))
    """

    optimizer: Adam | SGD = Adam(lr=1e-3)  # Niu 2022's CIFAR settings, at batch size 200
    entropy_threshold: NonNegative = 0.4  # Niu 2022, E0 of Eq. 3
    margin: NonNegative = 0.4  # Niu 2022, Eq. 5, on CIFAR-10-C
    decay: Probability = 0.9  # Niu 2022, Eq. 4
    classes: Count | None = None

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {"margin": 0.1},  # the reference framework's
        # Niu 2022, at batch size 64; Nesterov is the reference framework's
        "imagenet_c": {
            "optimizer": SGD(lr=2.5e-4, momentum=0.9, nesterov=True),
            "margin": 0.05,
        },
    }


class EtaModel(AdaptedModel):
    """Learns from images that are predicted reliably and unlike those before.

    Its state adds `running_prediction`, the mean softmax of the images learned from, (class,); 0
    before the first. If no image is kept, there is no step.
    """

    name = "eta"
    settings_type = Eta
    _settings: Eta

    def __init__(self, model: nn.Module, settings: Eta) -> None:
        trained = normalization_layers(model, self.name)
        model, layers = AdaptiveLayers.replace(model, self.name, required=False, needs_source=False)
        super().__init__(model, settings)
        self._layers = layers
        self._trainer = Trainer(model, layers, trained, settings.optimizer)
        self._classes = settings.classes or count_classes(model)
        self._register_state()

    def _initial_state(self) -> State:
        state = self._trainer.initial_state()
        return state | {"running_prediction": state["weights"].new_zeros(self._classes)}

    def _predict(self, batch: Batch) -> Prediction:
        state = self._initial_state() if self._settings.episodic else self._state()
        outputs, state = train_steps(self._learn, batch, state, self._settings)
        return self._after(outputs, **state)

    def _learn(self, batch: Batch, state: State) -> tuple[Any, State]:
        """Predict; keep reliable images, of those the non-redundant; step on their entropy."""
        forward = self._trainer.forward(batch, state["weights"])
        logits, running = forward.logits, state["running_prediction"]
        self._check_classes(logits)
        entropies, limit = entropy(logits), threshold(self._settings.entropy_threshold, logits)
        predictions = logits.detach().softmax(dim=1)  # (image, class)
        kept = (entropies < limit) & not_redundant(predictions, running, self._settings.margin)
        after = state
        if kept.any():
            loss = weighted(entropies[kept], limit).mean()
            running = follow(running, predictions[kept], self._settings.decay)
            after = self._trainer.step(state, forward.gradient(loss))
            after = after | {"running_prediction": running}
        return forward.outputs, after | self._trainer.measured(forward, state)

    def _check_classes(self, logits: Tensor) -> None:
        if logits.shape[1] != self._classes:
            raise ModelError(
                f"the model returned {logits.shape[1]} logits per image; expected {self._classes}. "
                f'Pass their number: adapt(model, "eta", classes={logits.shape[1]})'
            )

    def freeze(self) -> nn.Module:
        """A plain copy of the model with the trained weights and the last batch's statistics."""
        return self._trainer.freeze(self._state(), self._state()["weights"])

    def report(self) -> Report:
        """Every adapted layer, and the parameters that are trained."""
        return self._trainer.report(self.name, self._state())


def not_redundant(predictions: Tensor, running: Tensor, margin: float) -> Tensor:
    """Which predictions are unlike the running one: |cosine| < margin; all, if there is none yet.

    predictions: (image, class). running: (class,). Returns (image,), true or false.

    >>> p = torch.tensor([[1.0, 0.0], [0.0, 1.0]], device="cpu")
    >>> not_redundant(p, p[0], margin=0.4).tolist()
    [False, True]
    """
    cosines = functional.cosine_similarity(predictions, running.unsqueeze(0), dim=1)  # (image,)
    return (cosines.abs() < margin) | ~running.any()


def weighted(entropies: Tensor, limit: float) -> Tensor:
    """Confident predictions count for more: entropy * exp(limit - entropy), a constant weight."""
    return entropies * torch.exp(limit - entropies.detach())


def follow(running: Tensor, predictions: Tensor, decay: float) -> Tensor:
    """Moves to decay * running + (1 - decay) * mean of the predictions; to the mean at first."""
    mean = predictions.mean(dim=0)  # (class,)
    return torch.where(running.any(), decay * running + (1 - decay) * mean, mean)
