"""What is remembered of the order in which labels come, and what it adds to the answers.

The part of methods/realistic.py that answers an image by those around it, where labels come in
runs; the maths is in statistics/label_order.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from realistic_tta.functional.arrays import as_tensor, at_hand
from realistic_tta.functional.label_order import LabelOrder, read, read_in_graph
from realistic_tta.functional.leaning import Number
from realistic_tta.layers.remembered_statistics import (
    RememberedStatistics,
    trust_in_images,
)

from .batch import Batch
from .mirror_memory import MirrorMemory
from .outputs import map_tensors, widen
from .realistic_settings import RealisticSettings


class LabelMemory(MirrorMemory):
    """Whether labels come in runs, and how long these are.

    Buffers order_...: as `LabelOrder` has them.
    """

    settings: RealisticSettings
    order_ways: Tensor
    order_belief: Tensor
    order_usual: Tensor
    order_images: Tensor

    @property
    def order(self) -> LabelOrder:
        """What is known of the order of labels."""
        known = self.order_ways, self.order_belief, self.order_usual, self.order_images
        return LabelOrder(*map(at_hand, known))

    def order_at_first(self) -> dict[str, Tensor]:
        """Before the first batch."""
        return _named(LabelOrder.none(self.settings.classes or 1, self.source_mean))

    def noise(self) -> Number:
        """How many times noise counts: the more, the more labels come in runs.

        Twice where neighbours answer an image, and its class is as well left in it. Where each
        image is answered on its own, a run counts as a single image.
        """
        order = self.order
        more = 1.0 if self.settings.label_runs else order.run_length()
        return self.settings.noise * (1 + order.runs() * more)

    def doubt_of_changes(self) -> Number:
        """How far what looks like a change of domain may be one of class, 0 to 1."""
        return self.order.doubt_of_changes()

    def in_order(
        self, outputs: Any, batch: Batch, rules: Sequence[RememberedStatistics]
    ) -> tuple[Any, dict[str, Tensor]]:
        """The outputs with what the images around each tell of it, and the order with this batch.

        As they are where labels come in any order, where not every image has its logits, or where
        nobody wants it (label_runs=False). An image tells as much as it is trusted.
        """
        logits = self.logits(outputs)
        if logits is None:
            return outputs, {}
        own = widen(logits).softmax(dim=1)
        own = torch.nan_to_num(own, nan=1 / own.shape[1])  # an answer that overflowed tells nothing
        trust = trust_in_images(rules, len(own))
        if trust is not None:
            own = torch.lerp(torch.full_like(own, 1 / own.shape[1]), own, trust.to(own.dtype))
        everyone, mine = self._of_everyone(own, batch)
        if everyone is None:
            return outputs, {}
        predictions = everyone.to(self.source_mean.dtype)
        look = read_in_graph if torch.compiler.is_compiling() else read
        added, order = look(self.order, at_hand(predictions), self.settings.decay)
        if added is None or not self.settings.label_runs:
            return outputs, _named(order)
        answers = (widen(logits) + as_tensor(added)[mine]).to(logits.dtype)
        return _exchanged(outputs, logits, answers), _named(order)

    def _of_everyone(self, own: Tensor, batch: Batch) -> tuple[Tensor | None, slice]:
        """The predictions of all processes, (image, class), and where the own ones are among them.

        None where there are more or fewer of them than images.
        """
        if self.replicas is None:
            return (own if len(own) == batch.size else None), slice(None)
        everyone, mine = self.replicas.join(own)
        return (None if everyone.isnan().any() else everyone), mine


def _exchanged(outputs: Any, logits: Tensor, answers: Tensor) -> Any:
    """The outputs with the answers in place of the logits."""
    return map_tensors(lambda each: answers if each is logits else each, outputs)


def _named(order: LabelOrder) -> dict[str, Tensor]:
    return {f"order_{name}": as_tensor(value) for name, value in order._asdict().items()}
