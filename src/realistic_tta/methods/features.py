"""What a network's classifier sees, caught on its way. Used by lame and adacontrast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from realistic_tta.errors import ModelError, SettingError, unknown


def feature_layer(network: nn.Module, name: str | None = None) -> nn.Module:
    """The layer whose input are the features: the one named, else the network's last Linear."""
    layers: dict[str, nn.Module] = dict(network.named_modules())
    if name is not None:
        if name not in layers:
            raise SettingError(f"features: {unknown('layer', name, layers.keys() - {''})}")
        return layers[name]
    linear = [layer for layer in layers.values() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ModelError(
            "the network has no Linear layer whose input could serve as features; name the layer "
            f'that classifies, for instance adapt(network, ..., features="{list(layers)[-1]}")'
        )
    return linear[-1]


class Caught:
    """The input that reached a layer in one pass."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook: takes note of the first tensor that the layer is given."""
        self.inputs += [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)][:1]

    def features(self) -> Tensor:
        """One row an image, (image, feature); of the layer's last use in the pass."""
        if not self.inputs:
            raise ModelError(
                "the batch went past the layer whose input serves as features; "
                'name one that every batch reaches, for instance features="fc"'
            )
        return self.inputs[-1].flatten(start_dim=1)


@contextmanager
def catching(layer: nn.Module) -> Iterator[Caught]:
    """While the context lasts, what reaches the layer is caught."""
    caught = Caught()
    hook = layer.register_forward_pre_hook(caught, with_kwargs=True)
    try:
        yield caught
    finally:
        hook.remove()
