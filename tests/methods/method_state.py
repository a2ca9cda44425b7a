"""The state of the method inside an adapted model without wrappers."""

from __future__ import annotations

from torch import Tensor, nn

_METHOD = "_model."  # adapt() returns the serving wrapper around the method
_MODEL = "_model._model."  # and the method holds the model


def method_state(adapted: nn.Module) -> dict[str, Tensor]:
    """The tensors that the method remembers, by name, as `state_dict` has them."""
    return {
        key.removeprefix(_METHOD): tensor
        for key, tensor in adapted.state_dict().items()
        if key.startswith(_METHOD) and not key.startswith(_MODEL)
    }
