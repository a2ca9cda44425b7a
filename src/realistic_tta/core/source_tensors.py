"""The tensors of a model that adaptation never changes: parameters and BatchNorm buffers."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from realistic_tta.layers.replacement import is_batch_norm, original_name


def source_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors by their names in the original model, whether its layers are replaced or not."""
    found = {}
    for name, module, own in _places(model):
        layer = original_name(model, name)
        tensor = module._parameters.get(own, module._buffers.get(own))
        assert tensor is not None
        found[f"{layer}.{own}" if layer else own] = tensor.detach()
    return found


def other_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The rest of the model's state, by its keys in the state_dict: a forward may change it."""
    fixed = {f"{name}.{own}" if name else own for name, _, own in _places(model)}
    return {key: value for key, value in model.state_dict().items() if key not in fixed}


def _places(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for name, module in model.named_modules(remove_duplicate=False):
        held = dict(module._parameters)  # its own, not those of modules inside
        if is_batch_norm(module):
            held |= module._buffers
        yield from ((name, module, own) for own, tensor in held.items() if tensor is not None)
