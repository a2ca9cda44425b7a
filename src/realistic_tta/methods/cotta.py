"""cotta: a student follows its averaged teacher, and forgets a little of it (Wang 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from realistic_tta.errors import SettingError

from .batch import Batch
from .checks import check_count, check_number
from .consistency import confidence, soft_cross_entropy, symmetric_cross_entropy
from .gradient_method import Pass
from .optimizers import SGD, Adam, Memory
from .outputs import find_logits, mean_outputs, widen
from .views.batch_images import images_of, with_images
from .views.cotta_view import cotta_view
from .weight_average import follow, restore
from .whole_network_method import SeededSettings, WholeNetworkMethod, generator_at


@dataclass(frozen=True)
class CottaSettings(SeededSettings):
    """The settings of every method that trains, a seed, and these.

    teacher_momentum: what the teacher keeps of itself at each step.
    restore: the probability with which each number of the student returns to the source.
    threshold: the source's confidence on the batch, below which the teacher looks at views.
    views: how many.
    symmetric: whether the student's prediction is a target too (ImageNet).
    """

    optimizer: Adam | SGD = Adam(lr=1e-3)  # Wang 2022, CIFAR, at batch size 200
    teacher_momentum: float = 0.999  # Wang 2022, section 4.1
    restore: float = 0.01  # Wang 2022, CIFAR
    threshold: float = 0.92  # Wang 2022, CIFAR-10-C
    views: int = 32  # Wang 2022, section 4.1
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

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("teacher_momentum", "restore", "threshold"):
            check_number(name, getattr(self, name), low=0, high=1)
        check_count("views", self.views)
        if not isinstance(self.symmetric, bool):
            raise SettingError(f"symmetric is {self.symmetric!r}; expected True or False")


class Cotta(WholeNetworkMethod):
    """Trains all parameters of a student towards its teacher, the average of the student so far.

        loss = cross-entropy(student on the batch, target: softmax of the teacher's logits)

    If the source network is not sure of the batch, the teacher's logits are averaged over views.
    Views need images of 1 or 3 channels with values from 0 to 1; the network normalises inside.
    The prediction is the teacher's, from before the step. Memory: `weights` is the student,
    `teacher` the teacher; the network's own parameters are the source.
    """

    name = "cotta"
    settings_type = CottaSettings
    settings: CottaSettings
    predicts_with = "teacher"

    def at_start(self) -> Memory:
        """The student and the teacher are the source."""
        memory = super().at_start()
        return memory | {"teacher": memory["weights"].clone()}

    def learn(self, batch: Batch, memory: Memory) -> tuple[Any, Memory]:
        """Ask the teacher; step towards it; let it follow; restore some of the source."""
        settings, generator = self.settings, generator_at(memory["generator_state"])
        taught = self._ask_teacher(batch, memory["teacher"], generator)
        student = self.run_trained(batch, memory["weights"], self.unrecorded())
        distance = symmetric_cross_entropy if settings.symmetric else soft_cross_entropy
        loss = distance(student.logits, taught.logits)
        after = self.descend(memory, student.gradient(loss))
        weights, source = after["weights"], self.trained.source_weights()
        return taught.outputs, {
            **after,
            **self.statistics_of(taught),
            "teacher": follow(memory["teacher"], weights, settings.teacher_momentum),
            "weights": restore(weights, source, settings.restore, generator),
            "generator_state": generator.get_state(),
        }

    @torch.no_grad()
    def _ask_teacher(self, batch: Batch, teacher: Tensor, generator: torch.Generator) -> Pass:
        """The teacher's output for the batch itself, or the mean over views of it.

        Means are less sure in form than any one look: a guard is given the batch itself, too.
        """
        sure = self._source_is_sure(batch)
        images = images_of(batch)
        looks = [batch] if sure else self._views(batch, images, generator)
        rules = self.batch_rules()
        with self.trained.replaced(teacher):
            outputs = mean_outputs(self.run_with(look, rules) for look in looks)
            self.of_one_pass = None
            if self.guard is not None and not sure:
                self.of_one_pass = find_logits(self.run_with(batch, self.unrecorded()))
        return Pass(outputs, teacher, rules)

    def _source_is_sure(self, batch: Batch) -> bool:
        logits = widen(find_logits(self.run_with(batch, self.unrecorded())))
        return bool(confidence(logits) >= self.settings.threshold)

    def _views(self, batch: Batch, images: Tensor, generator: torch.Generator) -> Iterator[Batch]:
        for _ in range(self.settings.views):
            yield with_images(batch, cotta_view(images, generator))
