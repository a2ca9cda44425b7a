"""Most bytes alive at once in a call: every tensor that an operation makes, until it is freed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Alive(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known: set[int] = set()
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(outputs):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return outputs

    def _count(self, storage: torch.UntypedStorage) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        if place in self.known or not size:
            return
        self.known.add(place)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._free, place, size)

    def _free(self, place: int, size: int) -> None:
        self.known.discard(place)
        self.now -= size


def peak(model: nn.Module, call: Callable[[], object]) -> int:
    """Bytes: the model's own, and the most that the call holds at once."""
    own = {each.data_ptr(): each for each in (*model.parameters(), *model.buffers())}
    alive = _Alive()
    alive.known.update(each.untyped_storage().data_ptr() for each in own.values())
    with alive:
        call()
    return sum(each.nbytes for each in own.values()) + alive.most
