"""Which network a state belongs to: what its tensors are called, their shapes, and a checksum.

Used by methods/state_file.py. Only what no method and no forward changes is looked at: parameters,
and the buffers of BatchNorm layers. What a network keeps in other buffers is part of the state.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from realistic_tta.layers.network import is_batch_norm, original_name


@dataclass(frozen=True)
class Fingerprint:
    """layout: type and shape of each tensor by its name. sha256: of all their values."""

    layout: dict[str, str]
    sha256: str

    def difference(self, other: Fingerprint) -> str | None:
        """In a few words, what the other network has differently; None if it is the same."""
        for name in self.layout:
            if name not in other.layout:
                return f'it has no "{name}"'
            if self.layout[name] != other.layout[name]:
                return f'"{name}" is {other.layout[name]}, expected {self.layout[name]}'
        for name in other.layout:
            if name not in self.layout:
                return f'"{name}" is not expected'
        return None if self.sha256 == other.sha256 else "it has the same layers with other weights"


def fingerprint(network: nn.Module) -> Fingerprint:
    """Of a network, whether its BatchNorms are replaced by adaptive ones or not."""
    layout, digest = {}, hashlib.sha256()
    for name, tensor in sorted(fixed_tensors(network), key=lambda named: named[0]):
        layout[name] = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        digest.update(f"{name} {layout[name]}\n".encode())
        digest.update(_bytes(tensor))
    return Fingerprint(layout, digest.hexdigest())


def fixed_tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name in the original network, and value, of each tensor that stays as it was trained."""
    for name, module, own in _places(network):
        layer = original_name(network, name)
        tensor = module._parameters.get(own, module._buffers.get(own))  # noqa: SLF001
        assert tensor is not None
        yield (f"{layer}.{own}" if layer else own), tensor.detach()


def fixed_names(network: nn.Module) -> set[str]:
    """The keys of the same tensors in the network's own state_dict."""
    return {f"{name}.{own}" if name else own for name, _, own in _places(network)}


def _places(network: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for name, module in network.named_modules(remove_duplicate=False):
        held = dict(module._parameters)  # noqa: SLF001 - its own, not those of modules inside
        if is_batch_norm(module):
            held |= module._buffers  # noqa: SLF001
        yield from ((name, module, own) for own, tensor in held.items() if tensor is not None)


def _bytes(tensor: Tensor) -> ctypes.Array[ctypes.c_char] | bytes:
    """The tensor's values where they lie in memory."""
    tensor = tensor.detach().cpu().contiguous()
    if not tensor.numel():
        return b""
    # A copy, where one was made, lives on in the array: its memory must not be given back yet.
    view = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    view.tensor = tensor  # type: ignore[attr-defined]
    return view
