"""Parameters of a network that a method trains, as one flat vector. Used by gradient_method.py.

The network's own stay at their source values; the trained ones take their places only while it
runs. So there is nothing to put back after a failure, and nothing to keep a second copy of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class TrainedParameters:
    """Places of parameters in a network; one that is shared has several.

    named_layers: the layers whose own parameters are trained, with their names.
    """

    def __init__(self, named_layers: Iterable[tuple[str, nn.Module]]) -> None:
        found: dict[int, tuple[str, list[tuple[nn.Module, str]]]] = {}
        for name, layer in named_layers:
            for own, parameter in layer._parameters.items():  # noqa: SLF001
                if parameter is not None and parameter.is_floating_point():
                    path = f"{name}.{own}" if name else own
                    found.setdefault(id(parameter), (path, []))[1].append((layer, own))
        self.names = [name for name, _ in found.values()]
        self.places = [places for _, places in found.values()]

    @property
    def source(self) -> list[Tensor]:
        """The network's own values."""
        owned = (places[0] for places in self.places)
        return [layer._parameters[own].detach() for layer, own in owned]  # type: ignore[union-attr]  # noqa: SLF001

    def source_weights(self) -> Tensor:
        """The network's own values as one vector, in float32 or better, (number,)."""
        source = self.source
        dtype = torch.float32
        for parameter in source:
            dtype = torch.promote_types(dtype, parameter.dtype)
        return torch.cat([parameter.flatten().to(dtype) for parameter in source])

    def leaves(self, weights: Tensor) -> list[Tensor]:
        """The vector cut into the parameters' shapes, each the start of a gradient."""
        source = self.source
        parts = weights.detach().split([parameter.numel() for parameter in source])
        return [
            part.view(parameter.shape).detach().requires_grad_()
            for part, parameter in zip(parts, source, strict=True)
        ]

    @contextmanager
    def replaced(self, values: Sequence[Tensor]) -> Iterator[None]:
        """The network runs with these values, in its own type, for as long as the context lasts."""
        source = [places[0][0]._parameters[places[0][1]] for places in self.places]  # noqa: SLF001
        try:
            for places, value, own in zip(self.places, values, source, strict=True):
                assert own is not None
                self._put(places, value.to(own.dtype))
            yield
        finally:
            for places, own in zip(self.places, source, strict=True):
                self._put(places, own)

    @staticmethod
    def _put(places: list[tuple[nn.Module, str]], value: Tensor | None) -> None:
        for layer, own in places:
            layer._parameters[own] = value  # type: ignore[assignment]  # noqa: SLF001


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """One vector of all numbers, (number,)."""
    return torch.cat([tensor.flatten() for tensor in tensors])
