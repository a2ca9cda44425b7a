"""One call's arguments, checked before anything is touched. Used by methods/base.py."""

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
    """The arguments of one call and the number of images in it."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    size: int

    @classmethod
    def of(
        cls,
        network: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        may_be_empty: bool = False,
    ) -> Self:
        """Finds the images, the first argument that holds tensors, and checks them."""
        name, value, images = _find_images(args, kwargs)
        size = _size(name, value, images)
        for tensor in images if size or not may_be_empty else ():
            _check(name, tensor, network)
        return cls(args, kwargs, size)

    def describe(self) -> str:
        """The arguments in a few words, for messages."""
        parts = [_describe(value) for value in self.args]
        parts += [f"{name}={_describe(value)}" for name, value in self.kwargs.items()]
        return ", ".join(parts)


def _find_images(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Any, list[Tensor]]:
    """The first argument that holds tensors: its name, itself, and they."""
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
    """The tensors of a list, tuple or mapping of inputs."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [item for item in value if isinstance(item, Tensor)]
    return []


def _size(name: str, value: Any, images: list[Tensor]) -> int:
    """Images in the batch: the length of a list of images, else the first dimension."""
    if images[0].ndim == 0:
        raise InputError(f"{name} is a single number; expected a batch of images (image, ...)")
    if _is_list_of_images(value, images):
        return len(images)
    return int(images[0].shape[0])


def _is_list_of_images(value: Any, images: list[Tensor]) -> bool:
    """As detection takes them; a list of batches otherwise."""
    return isinstance(value, list) and images[0].ndim == 3


def finite_samples(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    """Which images of a call hold neither NaN nor Inf, (image,)."""
    name, value, images = _find_images(args, kwargs)
    if _is_list_of_images(value, images):
        return torch.stack([torch.isfinite(image).all() for image in images])
    size = _size(name, value, images)
    batches = [tensor for tensor in images if tensor.ndim and len(tensor) == size]
    rows = [tensor.reshape(size, tensor.shape[1:].numel()) for tensor in batches]  # may be none
    return torch.stack([torch.isfinite(each).all(dim=1) for each in rows]).all(dim=0)


def _check(name: str, images: Tensor, network: nn.Module) -> None:
    if images.numel() == 0:
        raise InputError(
            f"{name} is empty, shape {tuple(images.shape)}; expected at least one image"
        )
    if not images.is_floating_point():
        if _takes_indices(network):
            return
        raise InputError(
            f"{name} is {images.dtype}, shape {tuple(images.shape)}; expected floating-point "
            "images: convert them as in training, for instance images.float() / 255"
        )
    if images.is_meta or torch.compiler.is_compiling():  # values cannot be looked at
        return
    if math.isfinite(images.detach().sum().item()):  # NaN and Inf pass through a sum
        return
    if not torch.isfinite(images).all():  # else only the sum is too large
        finite = torch.isfinite(images).flatten(start_dim=1).all(dim=1)
        faulty = torch.nonzero(~finite).flatten().tolist()
        raise NonFiniteError(
            f"{name} holds NaN or Inf in {len(faulty)} of {len(images)} images, at {faulty[:10]}; "
            "remove them and call again. Nothing was changed"
        )


def _takes_indices(network: nn.Module) -> bool:
    return any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in network.modules())


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__


def count_images(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """How many images a call brought; 0 if that cannot be told."""
    for value in (*args, *kwargs.values()):
        images = [value] if isinstance(value, Tensor) else _tensors_in(value)
        if images:
            return _size("images", value, images)
    return 0
