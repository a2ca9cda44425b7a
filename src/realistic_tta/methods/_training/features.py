"""Captures the features of a model: the input of its classifier. Used by lame, adacontrast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from realistic_tta.core.outputs import widen
from realistic_tta.errors import ModelError, OptionError, unknown


def feature_layer(model: nn.Module, name: str | None = None) -> nn.Module:
    """The layer whose input are the features: the one named, else the model's last Linear."""
    layers: dict[str, nn.Module] = dict(model.named_modules())
    if name is not None:
        if name not in layers:
            raise OptionError(f"features: {unknown('layer', name, layers.keys() - {''})}")
        return layers[name]
    linear = [layer for layer in layers.values() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ModelError(
            "the model has no Linear layer whose input could serve as features; name the layer "
            f'that classifies, for instance adapt(model, ..., features="{list(layers)[-1]}")'
        )
    return linear[-1]


class Captured:
    """The input that reached a layer in one pass, at its last use."""

    def __init__(self) -> None:
        self.inputs: Tensor | None = None

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook that remembers the first tensor argument."""
        tensors = (each for each in (*args, *kwargs.values()) if isinstance(each, Tensor))
        self.inputs = next(tensors, self.inputs)

    def features(self) -> Tensor:
        """The input of the layer's last use in the pass, (image, feature), in float32 or better."""
        if self.inputs is None:
            raise ModelError(
                "the batch went past the layer whose input serves as features; "
                'name one that every batch reaches, for instance features="fc"'
            )
        return widen(self.inputs.flatten(start_dim=1))


@contextmanager
def capturing(layer: nn.Module) -> Iterator[Captured]:
    """While the context lasts, the inputs of the layer are captured."""
    captured = Captured()
    try:
        try:
            layer.register_forward_pre_hook(captured, with_kwargs=True)
            yield captured
        finally:
            _remove(layer, captured)
    finally:
        _remove(layer, captured)  # a signal handler may have raised on the way


def _remove(layer: nn.Module, hook: Captured) -> None:
    """Removes a hook, also one without a handle because its registration was interrupted."""
    for key, each in tuple(layer._forward_pre_hooks.items()):
        if each is hook:
            layer._forward_pre_hooks_with_kwargs.pop(key, None)
            del layer._forward_pre_hooks[key]
