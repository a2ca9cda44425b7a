"""Says where in a model a forward pass failed. Used by adapted_model.py, only after a failure."""

from __future__ import annotations

import traceback

from torch import nn

from .batch import Batch


def describe_failure(error: BaseException, model: nn.Module, batch: Batch) -> str:
    """The innermost layer that raised, and the arguments of the call."""
    names = {id(module): name for name, module in model.named_modules()}
    where = "the model"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and names.get(id(module)):
            where = f'layer "{names[id(module)]}" ({type(module).__name__})'
    return (
        f"{where} failed on ({batch.describe()}); the adapted state is unchanged. "
        "Check that the batch has the shape, type and device that the model was trained with"
    )
