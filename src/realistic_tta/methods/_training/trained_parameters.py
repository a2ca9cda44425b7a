"""The parameters that a method trains, as one flat vector. Used by trainer.py.

The model's own parameters keep their source values; trained ones replace them only during a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class TrainedParameters:
    """The places of parameters in a model; a shared parameter has several.

    named_layers: the layers whose own parameters are trained, with their names.
    """

    def __init__(self, named_layers: Iterable[tuple[str, nn.Module]]) -> None:
        found: dict[int, tuple[str, list[tuple[nn.Module, str]]]] = {}
        for name, layer in named_layers:
            for own, parameter in layer._parameters.items():
                if parameter is not None and parameter.is_floating_point():
                    path = f"{name}.{own}" if name else own
                    found.setdefault(id(parameter), (path, []))[1].append((layer, own))
        self.names = [name for name, _ in found.values()]
        self.places = [places for _, places in found.values()]
        self.shapes = [parameter.shape for parameter in self.source]
        self.sizes = [shape.numel() for shape in self.shapes]

    @property
    def source(self) -> list[Tensor]:
        """The model's own values."""
        owned = (places[0] for places in self.places)
        return [layer._parameters[own].detach() for layer, own in owned]  # type: ignore[union-attr]

    def source_weights(self) -> Tensor:
        """The model's own values as one vector, in float32 or better, (number,)."""
        source = self.source
        dtype = torch.float32
        for parameter in source:
            dtype = torch.promote_types(dtype, parameter.dtype)
        return torch.cat([parameter.flatten().to(dtype) for parameter in source])

    def split(self, weights: Tensor) -> list[Tensor]:
        """The vector in the parameters' shapes; views, through which gradients flow back to it."""
        parts = zip(weights.split(self.sizes), self.shapes, strict=True)
        return [part if len(shape) == 1 else part.view(shape) for part, shape in parts]

    @contextmanager
    def replaced(self, weights: Tensor) -> Iterator[None]:
        """The model runs with these weights, in its own type, while the context lasts."""
        source = [layer._parameters[own] for (layer, own), *_ in self.places]
        pairs = zip(self.split(weights), source, strict=True)
        given = [new if new.dtype == old.dtype else new.to(old.dtype) for new, old in pairs]  # type: ignore[union-attr]
        try:
            try:
                self._put(given)
                yield
            finally:
                self._put(source)
        finally:
            self._put(source)  # a signal handler may have raised on the way

    def _put(self, values: Sequence[Tensor | None]) -> None:
        for places, value in zip(self.places, values, strict=True):
            for layer, own in places:
                layer._parameters[own] = value  # type: ignore[assignment]
