"""sar: sharpness-aware entropy minimisation on reliable images, with recovery (Niu 2023)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from realistic_tta.errors import ModelError, SettingError

from .batch import Batch
from .checks import check_number
from .entropy import entropy, threshold
from .gradient_method import GradientMethod, TrainingSettings
from .optimizers import SGD, Adam, Memory


@dataclass(frozen=True)
class SarSettings(TrainingSettings):
    """See TrainingSettings for the first three.

    entropy_threshold: reliable is an entropy below this fraction of ln(classes).
    radius: how far the weights climb before the gradient is taken, the paper's rho.
    recover_below: weights go back to the source when the running loss falls below this.
    decay: what the past weighs in the running loss.
    exclude: names of modules that are not trained, nor what is in them.
    """

    optimizer: Adam | SGD = SGD(lr=1e-3, momentum=0.9)  # the reference framework's, CIFAR
    entropy_threshold: float = 0.4  # Niu 2023, section 4
    radius: float = 0.05  # Niu 2023, section 4
    recover_below: float = 0.2  # Niu 2023, section 4; not scaled by the number of classes
    decay: float = 0.9  # Niu 2023, section 4
    # Niu 2023, appendix: the last stage of a ResNet, the last blocks and the last norm of a ViT
    exclude: tuple[str, ...] = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {},
        "imagenet_c": {"optimizer": SGD(lr=2.5e-4, momentum=0.9)},  # Niu 2023, batch size 64
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("entropy_threshold", self.entropy_threshold, low=0)
        check_number("radius", self.radius, low=0)
        check_number("recover_below", self.recover_below, low=0)
        check_number("decay", self.decay, low=0, high=1)
        if isinstance(self.exclude, str) or not all(isinstance(name, str) for name in self.exclude):
            raise SettingError(f"exclude is {self.exclude!r}; expected a tuple of module names")


class Sar(GradientMethod):
    """Learns what lowers the entropy not only here, but also where it is highest nearby.

    running_loss: of the batches learnt from; infinite while there is none.

    Two things differ from the authors' program. Where no image is reliable there is no step, while
    theirs lets the momentum move the weights. And recovery restores the optimiser too.
    """

    name = "sar"
    settings_type = SarSettings
    settings: SarSettings

    def layers_to_train(self) -> Iterable[tuple[str, nn.Module]]:
        """Layers that normalise, without those whose names are excluded."""
        layers = list(super().layers_to_train())
        kept = [(name, layer) for name, layer in layers if not self._excludes(name)]
        if not kept:
            raise ModelError(
                f"all {len(layers)} normalisation layers of the network are in modules that sar "
                f"does not train ({', '.join(self.settings.exclude)}). To train them nevertheless: "
                'adapt(network, "sar", exclude=())'
            )
        return kept

    def at_start(self) -> Memory:
        """As every method that trains; no running loss."""
        start = super().at_start()
        return start | {"running_loss": start["weights"].new_full((), torch.inf)}

    def learn(self, batch: Batch, memory: Memory) -> tuple[Any, Memory]:
        """Predict; climb; take the gradient there, of images reliable in both; step from here."""
        first = self.run_trained(batch, memory["weights"])
        entropies = entropy(first.logits)
        limit = threshold(self.settings.entropy_threshold, first.logits)
        reliable = entropies < limit
        after = memory
        if reliable.any():
            gradient = first.gradient(entropies[reliable].mean())
            climbed = climb(memory["weights"], gradient, self.settings.radius)
            second = self.run_trained(batch, climbed, self.unrecorded())
            entropies = entropy(second.logits)[reliable]
            still = entropies < limit
            if still.any():
                loss = entropies[still].mean()
                after = self.descend(memory, second.gradient(loss))
                after = self._recover(after, loss.detach())
        return first.outputs, after | self.statistics_of(first)

    def _recover(self, memory: Memory, loss: Tensor) -> Memory:
        """The memory with the new running loss; that of the start, if it has fallen too low."""
        running_loss = follow(memory["running_loss"], loss, self.settings.decay)
        if running_loss < self.settings.recover_below:
            return self.at_start()
        return memory | {"running_loss": running_loss}

    def _excludes(self, name: str) -> bool:
        return any(is_in(name, module) for module in self.settings.exclude)


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
    """Whether the layer lies in the module, which may itself lie deeper, as behind a wrapper.

    Only at the top is a module called just "norm" a network's last; deeper, it is any block's.

    >>> is_in("1.layer4.0.bn1", "layer4"), is_in("blocks.1.norm", "norm"), is_in("norm", "norm")
    (True, False, True)
    """
    if module == "norm":
        return name == module or name.startswith("norm.")
    return f".{module}." in f".{name}."
