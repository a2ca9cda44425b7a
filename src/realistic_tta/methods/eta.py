"""eta: tent on reliable and non-redundant images, weighted (Niu 2022).

It is EATA without the Fisher term that needs source images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from realistic_tta.errors import ModelError

from .batch import Batch
from .checks import check_count, check_number
from .entropy import entropy, threshold
from .gradient_method import GradientMethod, TrainingSettings
from .momentum_settings import count_classes
from .optimizers import SGD, Adam, Memory


@dataclass(frozen=True)
class EtaSettings(TrainingSettings):
    """See TrainingSettings for the first three.

    entropy_threshold: reliable is an entropy below this fraction of ln(classes).
    margin: redundant is a prediction whose cosine with the running one is not below this.
    decay: what the past weighs in the running prediction.
    classes: how many the network tells apart; by default the outputs of its last Linear layer.
    """

    optimizer: Adam | SGD = Adam(lr=1e-3)  # Niu 2022's CIFAR settings, at batch size 200
    entropy_threshold: float = 0.4  # Niu 2022, E0 of Eq. 3
    margin: float = 0.4  # Niu 2022, Eq. 5, on CIFAR-10-C
    decay: float = 0.9  # Niu 2022, Eq. 4
    classes: int | None = None

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {"margin": 0.1},  # the reference framework's
        # Niu 2022, at batch size 64; Nesterov is the reference framework's
        "imagenet_c": {
            "optimizer": SGD(lr=2.5e-4, momentum=0.9, nesterov=True),
            "margin": 0.05,
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("entropy_threshold", self.entropy_threshold, low=0)
        check_number("margin", self.margin, low=0)
        check_number("decay", self.decay, low=0, high=1)
        if self.classes is not None:
            check_count("classes", self.classes)


class Eta(GradientMethod):
    """Learns from images that are predicted surely and not like those before.

    running_prediction: mean softmax of what was learnt from, (class,); 0 while there is nothing.
    Where no image is kept, nothing is learnt: no step at all.
    """

    name = "eta"
    settings_type = EtaSettings
    settings: EtaSettings

    def at_start(self) -> Memory:
        """As every method that trains; no running prediction."""
        start = super().at_start()
        classes = self.settings.classes or count_classes(self.network)
        return start | {"running_prediction": start["weights"].new_zeros(classes)}

    def learn(self, batch: Batch, memory: Memory) -> tuple[Any, Memory]:
        """Predict; keep reliable images, of those the non-redundant; step on their entropy."""
        forward = self.run_trained(batch, memory["weights"])
        logits, running = forward.logits, memory["running_prediction"]
        self._check_classes(logits, running)
        entropies, limit = entropy(logits), threshold(self.settings.entropy_threshold, logits)
        predictions = logits.detach().softmax(dim=1)  # (image, class)
        kept = (entropies < limit) & not_redundant(predictions, running, self.settings.margin)
        after = memory
        if kept.any():
            loss = weighted(entropies[kept], limit).mean()
            running = follow(running, predictions[kept], self.settings.decay)
            after = self.descend(memory, forward.gradient(loss)) | {"running_prediction": running}
        return forward.outputs, after | self.statistics_of(forward)

    def _check_classes(self, logits: Tensor, running: Tensor) -> None:
        if logits.shape[1] != len(running):
            raise ModelError(
                f"the network returned {logits.shape[1]} logits an image; expected {len(running)}. "
                f'Pass their number: adapt(network, "eta", classes={logits.shape[1]})'
            )


def not_redundant(predictions: Tensor, running: Tensor, margin: float) -> Tensor:
    """Which predictions are unlike the running one: |cosine| < margin; all, while there is none.

    predictions: (image, class). running: (class,). Returns (image,), true or false.

    >>> p = torch.tensor([[1.0, 0.0], [0.0, 1.0]], device="cpu")
    >>> not_redundant(p, p[0], margin=0.4).tolist()
    [False, True]
    """
    cosines = functional.cosine_similarity(predictions, running.unsqueeze(0), dim=1)  # (image,)
    return (cosines.abs() < margin) | ~running.any()


def weighted(entropies: Tensor, limit: float) -> Tensor:
    """Surer predictions count for more: entropy * exp(limit - entropy), the weight a constant."""
    return entropies * torch.exp(limit - entropies.detach())


def follow(running: Tensor, predictions: Tensor, decay: float) -> Tensor:
    """Moves to decay * running + (1 - decay) * mean of the predictions; to the mean at first."""
    mean = predictions.mean(dim=0)  # (class,)
    return torch.where(running.any(), decay * running + (1 - decay) * mean, mean)
