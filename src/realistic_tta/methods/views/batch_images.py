"""The images in a call's arguments, and the same call with other images: what views are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from realistic_tta.errors import InputError
from realistic_tta.methods.batch import Batch


def images_of(batch: Batch) -> Tensor:
    """The first argument that is a tensor; raises unless it holds images that have views."""
    place = _place(batch)
    images = batch.kwargs[place] if isinstance(place, str) else batch.args[place]
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError(
            f"the batch has shape {tuple(images.shape)}; augmented views need images of 1 or 3 "
            "channels, (image, channel, row, column), with values from 0 to 1. "
            "For other inputs use a method without views, such as rectified_tema or tent"
        )
    found: Tensor = images
    return found


def with_images(batch: Batch, images: Tensor) -> Batch:
    """The same call with these images in place of its own."""
    place = _place(batch)
    if isinstance(place, str):
        kwargs: Mapping[str, Any] = {**batch.kwargs, place: images}
        return Batch(batch.args, kwargs, batch.size)
    args = (*batch.args[:place], images, *batch.args[place + 1 :])
    return Batch(args, batch.kwargs, batch.size)


def _place(batch: Batch) -> int | str:
    """Number or name of the first argument that is a tensor."""
    for number, value in enumerate(batch.args):
        if isinstance(value, Tensor):
            return number
    for name, value in batch.kwargs.items():
        if isinstance(value, Tensor):
            return name
    raise InputError(
        f"the images come inside another argument ({batch.describe()}); augmented views need "
        "them as one tensor (image, channel, row, column)"
    )
