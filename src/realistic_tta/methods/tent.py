"""tent: entropy minimisation on the parameters of normalisation layers (Wang 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .batch import Batch
from .entropy import entropy
from .gradient_method import GradientMethod, TrainingSettings
from .optimizers import SGD, Adam, Memory


@dataclass(frozen=True)
class TentSettings(TrainingSettings):
    """See TrainingSettings."""

    optimizer: Adam | SGD = Adam(lr=1e-3)  # Wang 2021, CIFAR, at batch size 200

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {},
        # Wang 2021, at batch size 64
        "imagenet_c": {"optimizer": SGD(lr=2.5e-4, momentum=0.9, nesterov=True)},
    }


class Tent(GradientMethod):
    """Makes the network surer of its predictions, on average over the batch.

        loss = mean of entropy(logits)

    The prediction is from before the step.
    """

    name = "tent"
    settings_type = TentSettings
    settings: TentSettings

    def learn(self, batch: Batch, memory: Memory) -> tuple[Any, Memory]:
        """Predict; step down the gradient of the mean entropy."""
        forward = self.run_trained(batch, memory["weights"])
        loss = entropy(forward.logits).mean()
        after = self.descend(memory, forward.gradient(loss))
        return forward.outputs, after | self.statistics_of(forward)
