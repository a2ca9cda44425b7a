"""A second look at small batches, in the mirror, and what is remembered of what it is worth.

The part of methods/realistic.py that makes up for what a small batch does not know: images that go
through the network together with their mirror images are answered better, for up to twice the time.
The maths is in statistics/likeness.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from realistic_tta.errors import ModelError
from realistic_tta.functional.arrays import Array, as_tensor, at_hand
from realistic_tta.functional.likeness import Likeness, compare, second_look

from .batch import Batch
from .batch_norm_method import BatchNormMethod
from .outputs import find_logits, map_tensors, tensors_in, widen
from .realistic_settings import RealisticSettings

_SELDOM = 16  # batches after which the mirror is looked into again, where it is of no use


class MirrorMemory(BatchNormMethod):
    """For which classes the mirror shows the same.

    Buffers mirror_...: as `Likeness` has them.
    """

    settings: RealisticSettings
    takes_mirror = True  # until the network is seen not to take twice as many images
    mirror_sums: Tensor
    mirror_images: Tensor

    @property
    def likeness(self) -> Likeness:
        """What is known of the mirror."""
        return Likeness(at_hand(self.mirror_sums), at_hand(self.mirror_images))

    def mirror_at_first(self) -> dict[str, Tensor]:
        """Before the first batch."""
        return _named(Likeness.none(self.settings.classes or 1, self.source_mean))

    def with_mirror(self, batch: Batch) -> Batch | None:
        """The images and, behind them, their mirror images; None where they are seen once.

        Only few images, (image, channel, row, column), without any other tensor, of a network
        whose mirror has not been found useless; and not where several processes share a batch.
        """
        if batch.size > self.settings.mirror or not self.takes_mirror or self.replicas is not None:
            return None
        given = [*batch.args, *batch.kwargs.values()]
        shapes = [tensor.shape for tensor in tensors_in(given)]
        if len(shapes) != 1 or len(shapes[0]) != 4 or shapes[0][0] != batch.size:
            return None
        if self._knows_better():
            return None
        args = tuple(map_tensors(_both, each) for each in batch.args)
        kwargs = {name: map_tensors(_both, each) for name, each in batch.kwargs.items()}
        return Batch(args, kwargs, batch.size)

    def logits(self, outputs: Any) -> Tensor | None:
        """Of as many classes as the settings say; None if there are none."""
        try:
            logits = find_logits(outputs)
        except ModelError:
            return None
        return logits if logits.shape[1] == (self.settings.classes or 1) else None

    def fits(self, outputs: Any, batch: Batch) -> bool:
        """Whether the network has answered images and mirror images, row by row, with logits."""
        return _has_rows(outputs, 2 * batch.size) and self.logits(outputs) is not None

    def from_both(self, outputs: Any) -> tuple[Any, dict[str, Tensor]]:
        """The answers with those of the mirror in them, and what is known of it with this batch.

        Where either has overflowed, the image is left as it is, and tells nothing of the mirror.
        """
        both = find_logits(outputs)
        logits, mirrored = widen(both).chunk(2)
        fine = torch.isfinite(logits + mirrored).all(dim=1, keepdim=True)
        own, other = (self._probabilities(each, fine) for each in (logits, mirrored))
        likeness = compare(self.likeness, own, other, self.settings.decay)
        answers = torch.where(fine, second_look(likeness, logits, mirrored), logits).to(both.dtype)
        images = len(answers)
        found = map_tensors(lambda each: answers if each is both else each[:images], outputs)
        return found, _named(likeness)

    def _probabilities(self, logits: Tensor, fine: Tensor) -> Array:
        """Of each image that is fine, and 0 of others, (image, class)."""
        return at_hand(torch.where(fine, logits.softmax(dim=1), 0).to(self.source_mean.dtype))

    def _knows_better(self) -> bool:
        """Whether the mirror is of no use, and it is not time yet to look again."""
        if torch.compiler.is_compiling() or self.step.device.type != "cpu":
            return False  # to ask would be to wait for the device
        return int(self.step) % _SELDOM > 0 and self.likeness.is_hopeless()


def _both(images: Tensor) -> Tensor:
    """Images, and their mirror images behind them."""
    return torch.cat((images, images.flip(3)))


def _has_rows(outputs: Any, rows: int) -> bool:
    """Whether there is nothing but tensors of so many rows, which can be cut."""
    if isinstance(outputs, Tensor):
        return outputs.shape[:1] == (rows,)
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    return isinstance(outputs, list | tuple) and all(_has_rows(each, rows) for each in outputs)


def _named(likeness: Likeness) -> dict[str, Tensor]:
    return {f"mirror_{name}": as_tensor(value) for name, value in likeness._asdict().items()}
