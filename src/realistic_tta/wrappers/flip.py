"""flip=True: averages predictions over a horizontal flip, where that keeps the label.

Costs a second prediction per batch. Whether a flip keeps the label is estimated per class from the
stream, so that models whose classes have a left and a right, such as digits, are not harmed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from realistic_tta.core.adapted_model import Prediction, State, Wrapper
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import find_logits, replace_logits, widen
from realistic_tta.core.settings import Settings
from realistic_tta.errors import InputError

MIN_AGREEMENT = 0.5  # the flip must keep the label more often than not


@dataclass(frozen=True)
class Flip(Settings):
    """flip has no hyperparameters."""


class FlipAverage(Wrapper):
    """Averages the probabilities of an image and of its horizontal flip.

    The average is used for images whose predicted class keeps its label under a flip. The method
    adapts to the images themselves, never to the flips.

    State: `agreement`, (2, class): how many images were predicted as each class, and how many of
    their flips were predicted as the same class. It starts at one image per class, in agreement.
    """

    name = "flip"
    settings_type = Flip

    def _initial_state(self) -> State:
        return {
            "agreement": torch.zeros(2, 0, device=self._device)
        }  # the number of classes follows from the first batch

    def _resizable(self) -> set[str]:
        return {"agreement", *super()._resizable()}

    def _predict(self, batch: Batch) -> Prediction:
        images = batch.image_tensor()
        if images.ndim != 4:
            raise InputError(
                f"the batch has shape {tuple(images.shape)}; flip=True needs images "
                "(image, channel, row, column)"
            )
        prediction = self._inner._predict(batch)
        flipped = self._inner._predict(batch.with_images(images.flip(3))).outputs
        p, q = (_probabilities(each) for each in (prediction.outputs, flipped))
        agreement = self._state()["agreement"].to(p)
        if agreement.shape[1] != p.shape[1]:
            agreement = p.new_ones(2, p.shape[1])
        labels = p.argmax(dim=1)
        same = torch.stack((torch.ones_like(p[:, 0]), (q.argmax(dim=1) == labels).to(p)))
        agreement = agreement.index_add(1, labels, same)
        kept = (agreement[1] / agreement[0])[labels] > MIN_AGREEMENT  # (image,)
        averaged = torch.where(kept[:, None], (p + q) / 2, p)
        outputs = replace_logits(prediction.outputs, averaged.log())
        return self._with(prediction, outputs, agreement=agreement)


def _probabilities(outputs: object) -> Tensor:
    """The softmax of the logits in an output, bounded away from 0."""
    p = widen(find_logits(outputs)).softmax(dim=1)
    return p.clamp_min(torch.finfo(p.dtype).tiny)
