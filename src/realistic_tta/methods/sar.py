"""sar: sharpness-aware entropy minimization on reliable images, with recovery (Niu 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.report import Report
from realistic_tta.core.settings import NonNegative, Probability
from realistic_tta.errors import ModelError
from realistic_tta.functional.entropy import entropy, threshold
from realistic_tta.layers.adaptive_layers import AdaptiveLayers

from ._training.optimizers import SGD, Adam
from ._training.trainer import Trainer, TrainingSettings, normalization_layers, train_steps


@dataclass(frozen=True)
class Sar(TrainingSettings):
    """The hyperparameters of sar, beside those of every method that trains.

    Args:
        entropy_threshold: a prediction is reliable below this fraction of ln(classes).
        radius: how far the weights climb before the gradient is taken, the paper's rho.
        recover_below: the weights return to the source when the running loss falls below this.
        decay: the weight of the past in the running loss.
        exclude: names of modules that are not trained, nor the modules inside them.

    >>> from realistic_tta import Sar, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), Sar(exclude=()))
    """

    optimizer: Adam | SGD = SGD(lr=1e-3, momentum=0.9)  # the reference framework's, CIFAR
    entropy_threshold: NonNegative = 0.4  # Niu 2023, section 4
    radius: NonNegative = 0.05  # Niu 2023, section 4
    recover_below: NonNegative = 0.2  # Niu 2023, section 4; not scaled by the number of classes
    decay: Probability = 0.9  # Niu 2023, section 4
    # Niu 2023, appendix: the last stage of a ResNet, the last blocks and the last norm of a ViT
    exclude: tuple[str, ...] = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {},
        "imagenet_c": {"optimizer": SGD(lr=2.5e-4, momentum=0.9)},  # Niu 2023, batch size 64
    }


class SarModel(AdaptedModel):
    """Learns what lowers the entropy not only here, but also where it is highest nearby.

    Its state adds `running_loss` of the batches learned from; infinite before the first.

    Two things differ from the authors' program. If no image is reliable there is no step, while
    theirs lets the momentum move the weights. And recovery restores the optimizer too.
    """

    name = "sar"
    settings_type = Sar
    _settings: Sar

    def __init__(self, model: nn.Module, settings: Sar) -> None:
        trained = self._not_excluded(normalization_layers(model, self.name), settings.exclude)
        model, layers = AdaptiveLayers.replace(model, self.name, required=False, needs_source=False)
        super().__init__(model, settings)
        self._layers = layers
        self._trainer = Trainer(model, layers, trained, settings.optimizer)
        self._register_state()

    def _initial_state(self) -> State:
        state = self._trainer.initial_state()
        return state | {"running_loss": state["weights"].new_full((), torch.inf)}

    def _predict(self, batch: Batch) -> Prediction:
        state = self._initial_state() if self._settings.episodic else self._state()
        outputs, state = train_steps(self._learn, batch, state, self._settings)
        return self._after(outputs, **state)

    def _learn(self, batch: Batch, state: State) -> tuple[Any, State]:
        """Predict; climb; take the gradient there, of images reliable in both; step from here."""
        first = self._trainer.forward(batch, state["weights"])
        entropies = entropy(first.logits)
        limit = threshold(self._settings.entropy_threshold, first.logits)
        reliable = entropies < limit
        after = state
        if reliable.any():
            gradient = first.gradient(entropies[reliable].mean())
            climbed = climb(state["weights"], gradient, self._settings.radius)
            second = self._trainer.forward(batch, climbed, self._trainer.unrecorded())
            entropies = entropy(second.logits)[reliable]
            still = entropies < limit
            if still.any():
                loss = entropies[still].mean()
                after = self._trainer.step(state, second.gradient(loss))
                after = self._recover(after, loss.detach())
        return first.outputs, after | self._trainer.measured(first, state)

    def _recover(self, state: State, loss: Tensor) -> State:
        """The state with the new running loss; the initial one, if that has fallen too low."""
        running_loss = follow(state["running_loss"], loss, self._settings.decay)
        if running_loss < self._settings.recover_below:
            return self._initial_state()
        return state | {"running_loss": running_loss}

    def _not_excluded(
        self, layers: list[tuple[str, nn.Module]], exclude: tuple[str, ...]
    ) -> list[tuple[str, nn.Module]]:
        kept = [each for each in layers if not any(is_in(each[0], module) for module in exclude)]
        if not kept:
            raise ModelError(
                f"all {len(layers)} normalization layers of the model are in modules that sar does "
                f"not train ({', '.join(exclude)}). To train them nevertheless: "
                'adapt(model, "sar", exclude=())'
            )
        return kept

    def freeze(self) -> nn.Module:
        """A plain copy of the model with the trained weights and the last batch's statistics."""
        return self._trainer.freeze(self._state(), self._state()["weights"])

    def report(self) -> Report:
        """Every adapted layer, and the parameters that are trained."""
        return self._trainer.report(self.name, self._state())


def climb(weights: Tensor, gradient: Tensor, radius: float) -> Tensor:
    """The highest point nearby, to first order (Foret 2021): a step of that length up the gradient.

    weights + radius * gradient / |gradient|

    >>> climb(torch.zeros(2, device="cpu"), torch.tensor([3.0, 4.0], device="cpu"), 5).tolist()
    [3.0, 4.0]
    """
    norm: Tensor = torch.linalg.vector_norm(gradient)
    return weights + gradient * (radius / (norm + 1e-12))


def follow(running: Tensor, value: Tensor, decay: float) -> Tensor:
    """Moves to decay * running + (1 - decay) * value; to the value itself at first."""
    return torch.where(running.isinf(), value, decay * running + (1 - decay) * value)


def is_in(name: str, module: str) -> bool:
    """Whether the layer lies in the module, which may itself be inside another one.

    Only at the top is is "norm" the last norm of a model; deeper, it belongs to a block.

    >>> is_in("1.layer4.0.bn1", "layer4"), is_in("blocks.1.norm", "norm"), is_in("norm", "norm")
    (True, False, True)
    """
    if module == "norm":
        return name == module or name.startswith("norm.")
    return f".{module}." in f".{name}."
