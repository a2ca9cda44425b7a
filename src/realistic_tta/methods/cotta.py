"""cotta: a student follows its averaged teacher, and forgets a little of it (Wang 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import mean_outputs
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Count, Probability
from realistic_tta.layers.adaptive_layers import AdaptiveLayers

from ._training.losses import confidence, soft_cross_entropy, symmetric_cross_entropy
from ._training.optimizers import SGD, Adam
from ._training.trainer import (
    Forward,
    SeededTrainingSettings,
    Trainer,
    all_layers,
    generator_from,
    train_steps,
)
from ._training.views.cotta_view import cotta_view
from ._training.views.images import view_images
from ._training.weight_average import follow, restore


@dataclass(frozen=True)
class Cotta(SeededTrainingSettings):
    """The hyperparameters of cotta, beside those of every method that trains.

    Args:
        teacher_momentum: the weight of the past in the teacher at each step.
        restore: the probability with which each number of the student returns to the source.
        threshold: the teacher sees augmented views if the source's confidence is below this.
        views: the number of views.
        symmetric: whether the student's prediction is also a target (ImageNet).

    >>> from realistic_tta import Cotta, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), Cotta(views=8))
    """

    optimizer: Adam | SGD = Adam(lr=1e-3)  # Wang 2022, CIFAR, at batch size 200
    teacher_momentum: Probability = 0.999  # Wang 2022, section 4.1
    restore: Probability = 0.01  # Wang 2022, CIFAR
    threshold: Probability = 0.92  # Wang 2022, CIFAR-10-C
    views: Count = 32  # Wang 2022, section 4.1
    symmetric: bool = False

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {"threshold": 0.72},
        # Wang 2022, at batch size 64
        "imagenet_c": {
            "optimizer": SGD(lr=0.01, momentum=0.9, nesterov=True),
            "restore": 0.001,
            "threshold": 0.1,
            "symmetric": True,
        },
    }


class CottaModel(AdaptedModel):
    """Trains all parameters of a student towards its teacher, the average of the student so far.

        loss = cross-entropy(student on the batch, target: softmax of the teacher's logits)

    If the source model is not confident, the teacher's logits are averaged over views. Views need
    images of 1 or 3 channels with values from 0 to 1; the model normalizes inside. The prediction
    is the teacher's, from before the step. In the state, `weights` is the student and `teacher` the
    teacher; the model's own parameters are the source.
    """

    name = "cotta"
    settings_type = Cotta
    _settings: Cotta

    def __init__(self, model: nn.Module, settings: Cotta) -> None:
        trained = all_layers(model, self.name)
        model, layers = AdaptiveLayers.replace(model, self.name, required=False, needs_source=False)
        super().__init__(model, settings)
        self._layers = layers
        self._trainer = Trainer(model, layers, trained, settings.optimizer)
        self._register_state()

    def _initial_state(self) -> State:
        state = self._trainer.initial_state()
        generator = torch.Generator("cpu").manual_seed(self._settings.seed)
        generator_state = generator.get_state()
        return state | {"teacher": state["weights"].clone(), "generator_state": generator_state}

    def _predict(self, batch: Batch) -> Prediction:
        state = self._initial_state() if self._settings.episodic else self._state()
        outputs, state = train_steps(self._learn, batch, state, self._settings)
        return self._after(outputs, **state)

    def _learn(self, batch: Batch, state: State) -> tuple[Any, State]:
        """Ask the teacher; step towards it; let it follow; restore some of the source."""
        trainer, generator = self._trainer, generator_from(state["generator_state"])
        taught = self._ask_teacher(batch, state["teacher"], generator)
        student = trainer.forward(batch, state["weights"], trainer.unrecorded())
        distance = symmetric_cross_entropy if self._settings.symmetric else soft_cross_entropy
        loss = distance(student.logits, taught.logits)
        after = trainer.step(state, student.gradient(loss))
        weights, source = after["weights"], trainer.parameters.source_weights()
        return taught.outputs, {
            **after,
            **trainer.measured(taught, state),
            "teacher": follow(state["teacher"], weights, self._settings.teacher_momentum),
            "weights": restore(weights, source, self._settings.restore, generator),
            "generator_state": generator.get_state(),
        }

    @torch.no_grad()
    def _ask_teacher(self, batch: Batch, teacher: Tensor, generator: torch.Generator) -> Forward:
        """The teacher's output for the batch itself, or the mean over views of it."""
        trainer, images = self._trainer, view_images(batch)
        source = trainer.forward(batch, trainer.parameters.source_weights(), trainer.unrecorded())
        confident = bool(confidence(source.logits) >= self._settings.threshold)
        looks = [batch] if confident else self._views(batch, images, generator)
        rules = trainer.batch_statistics()
        outputs = mean_outputs(trainer.forward(look, teacher, rules).outputs for look in looks)
        return Forward(outputs, teacher, rules)

    def _views(self, batch: Batch, images: Tensor, generator: torch.Generator) -> Iterator[Batch]:
        for _ in range(self._settings.views):
            yield batch.with_images(cotta_view(images, generator))

    def freeze(self) -> nn.Module:
        """A plain copy of the model with the teacher's weights and the last batch's statistics."""
        return self._trainer.freeze(self._state(), self._state()["teacher"])

    def report(self) -> Report:
        """Every adapted layer, and the parameters that are trained."""
        return self._trainer.report(self.name, self._state())
