"""The images of a batch, checked to be images of which augmented views can be made."""

from __future__ import annotations

from torch import Tensor

from realistic_tta.core.batch import Batch
from realistic_tta.errors import InputError


def view_images(batch: Batch) -> Tensor:
    """The images of a batch, (image, 1 or 3, row, column)."""
    images = batch.image_tensor()
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError(
            f"the batch has shape {tuple(images.shape)}; augmented views need images of 1 or 3 "
            "channels, (image, channel, row, column), with values from 0 to 1. "
            "For other inputs use a method without views, such as realistic or tent"
        )
    return images
