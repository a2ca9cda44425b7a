"""The arguments of one call, checked before anything is computed. Used by adapted_model.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from realistic_tta.errors import InputError, NonFiniteError


@dataclass(frozen=True)
class Batch:
    """The arguments of one call.

    size: the number of images; with a process group, of all processes together.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    size: int

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Self:
        """Finds the images: the first argument that holds tensors."""
        name, value, images = _find_images(args, kwargs)
        if images[0].ndim == 0:
            raise InputError(f"{name} is a single number; expected a batch of images (image, ...)")
        size = len(images) if _is_list_of_images(value, images) else int(images[0].shape[0])
        return cls(args, kwargs, size)

    def check(self, model: nn.Module) -> None:
        """Raises unless the images are floating-point, finite and at least one."""
        name, _, images = _find_images(self.args, self.kwargs)
        for tensor in images:
            _check(name, tensor, model)

    def finite_samples(self) -> Tensor:
        """Which images hold neither NaN nor Inf nor values whose squares overflow, (image,)."""
        _, value, images = _find_images(self.args, self.kwargs)
        if _is_list_of_images(value, images):
            return torch.stack([_has_finite_square(image[None])[0] for image in images])
        batches = [tensor for tensor in images if tensor.ndim and len(tensor) == self.size]
        return torch.stack([_has_finite_square(each) for each in batches]).all(dim=0)

    def select(self, which: Tensor) -> Batch:
        """The same call with some of the images. which: (image,), true or false."""
        args, kwargs = select_samples((self.args, dict(self.kwargs)), which)
        return Batch(args, kwargs, int(which.sum()))

    def image_tensor(self) -> Tensor:
        """The images, if they are one tensor argument; raises an InputError otherwise."""
        place = self._image_place()
        images = self.kwargs[place] if isinstance(place, str) else self.args[place]
        assert isinstance(images, Tensor)
        return images

    def with_images(self, images: Tensor) -> Batch:
        """The same call with other images in place of `image_tensor`."""
        place = self._image_place()
        if isinstance(place, str):
            return Batch(self.args, {**self.kwargs, place: images}, self.size)
        args = (*self.args[:place], images, *self.args[place + 1 :])
        return Batch(args, self.kwargs, self.size)

    def describe(self) -> str:
        """The types and shapes of the arguments, for messages."""
        parts = [_describe(value) for value in self.args]
        parts += [f"{name}={_describe(value)}" for name, value in self.kwargs.items()]
        return ", ".join(parts)

    def _image_place(self) -> int | str:
        for number, value in enumerate(self.args):
            if isinstance(value, Tensor):
                return number
        for name, value in self.kwargs.items():
            if isinstance(value, Tensor):
                return name
        raise InputError(
            f"the images are inside another argument ({self.describe()}); augmented views need "
            "them as one tensor (image, channel, row, column)"
        )


def select_samples(value: Any, which: Tensor) -> Any:
    """The same arguments or outputs with some of the samples.

    Samples are the first dimension of tensors, and the entries of lists as detection models take
    them. which: (sample,), true or false.
    """
    if isinstance(value, Tensor):
        batched = value.ndim and len(value) == len(which)
        return value[which.to(value.device)] if batched else value
    if isinstance(value, list) and len(value) == len(which) and not _is_list_of_batches(value):
        return [each for each, wanted in zip(value, which.tolist(), strict=True) if wanted]
    if isinstance(value, list | tuple):
        make = getattr(type(value), "_make", type(value))  # a named tuple takes them one by one
        return make([select_samples(each, which) for each in value])
    if isinstance(value, Mapping):
        return {name: select_samples(each, which) for name, each in value.items()}
    return value


def _is_list_of_batches(value: list[Any]) -> bool:
    """Whether the entries are tensors with a batch dimension, not one image or dict each."""
    return any(isinstance(each, Tensor) and each.ndim != 3 for each in value)


def _find_images(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Any, list[Tensor]]:
    """The first argument that holds tensors: its name, its value and the tensors."""
    named = [(f"argument {place}", value) for place, value in enumerate(args, start=1)]
    named += [(f'argument "{name}"', value) for name, value in kwargs.items()]
    for name, value in named:
        images = [value] if isinstance(value, Tensor) else _tensors_in(value)
        if images:
            return name, value, images
    raise InputError(
        f"no tensor among the arguments ({', '.join(name for name, _ in named) or 'none'}); "
        "expected a batch of images"
    )


def _tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [item for item in value if isinstance(item, Tensor)]
    return []


def _is_list_of_images(value: Any, images: list[Tensor]) -> bool:
    """Whether the argument is a list with one image per entry, as detection models take it."""
    return isinstance(value, list) and images[0].ndim == 3


def _has_finite_square(images: Tensor) -> Tensor:
    if not images.is_floating_point():
        return torch.ones(len(images), dtype=torch.bool, device=images.device)
    wide = images.to(torch.promote_types(images.dtype, torch.float32))
    return torch.isfinite(wide.square()[:, None].flatten(start_dim=1).sum(dim=1))


def _check(name: str, images: Tensor, model: nn.Module) -> None:
    if images.numel() == 0:
        raise InputError(
            f"{name} is empty, shape {tuple(images.shape)}; expected at least one image"
        )
    if not images.is_floating_point():
        if _takes_indices(model):
            return
        raise InputError(
            f"{name} is {images.dtype}, shape {tuple(images.shape)}; expected floating-point "
            "images: convert them as in training, for instance images.float() / 255"
        )
    if images.is_meta or torch.compiler.is_compiling():  # has no values to look at
        return
    if math.isfinite(images.detach().sum().item()):  # NaN and Inf survive a sum
        return
    finite = torch.isfinite(images)
    if not finite.all():  # otherwise only the sum overflows
        bad = torch.nonzero(~finite[:, None].flatten(start_dim=1).all(dim=1)).flatten().tolist()
        raise NonFiniteError(
            f"{name} holds NaN or Inf in {len(bad)} of {len(images)} images, at {bad[:10]}. "
            'Remove them, or use adapt(..., nonfinite="skip"). Nothing was changed'
        )


def _takes_indices(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules())


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__
