"""Says where in a network a forward failed. Used by methods/base.py, only after a failure."""

from __future__ import annotations

import traceback

from torch import nn

from .batch import Batch


def describe_failure(error: BaseException, network: nn.Module, batch: Batch) -> str:
    """The innermost layer that raised, and what the network was called with."""
    names = {id(module): name for name, module in network.named_modules()}
    where = "the network"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and names.get(id(module)):
            where = f'layer "{names[id(module)]}" ({type(module).__name__})'
    return (
        f"{where} failed on ({batch.describe()}); no statistic was changed. "
        "Check that the batch has the shape, type and device that the network was trained with"
    )
