"""Leaves samples with NaN or Inf out of a batch: adapt(..., on_bad_input="exclude").

Nothing here runs while all is well. After a NonFiniteError the good samples are called alone, so
they are predicted and learnt from to the bit as if the others had not come. Used by base.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from realistic_tta.errors import NonFiniteError
from realistic_tta.layers.adaptive_batch_norm import AdaptiveBatchNorm

from .batch import finite_samples
from .outputs import map_tensors, tensors_in

if TYPE_CHECKING:
    from .base import AdaptedModel

_LOG = logging.getLogger("realistic_tta")
Call = Callable[[Any, Any], Any]  # of args and kwargs


@dataclass(frozen=True)
class Exclusion:
    """output: what a faulty sample is answered with.

    "source": the network as trained, on the sample with every NaN and Inf replaced by the mean of
    its other values. "nan": NaN; outputs that are whole numbers are the source's all the same.
    """

    output: Literal["source", "nan"] = "source"

    def predict(
        self, adapted: AdaptedModel, call: Call, args: Any, kwargs: Any, error: NonFiniteError
    ) -> Any:
        """Calls with the good samples; all outputs, in their places."""
        good = finite_samples(args, kwargs)
        if not good.all():
            try:
                return self._leave_out(adapted, call, args, kwargs, good)
            except NonFiniteError as overflow:
                error = overflow
        # What is left is finite: values overflow in the network. All ranks know, and try once more.
        surviving = survivors(adapted.network, args, kwargs, good)
        if adapted.replicas is None and surviving.equal(good):
            raise error
        return self._leave_out(adapted, call, args, kwargs, surviving)

    def _leave_out(
        self, adapted: AdaptedModel, call: Call, args: Any, kwargs: Any, good: Tensor
    ) -> Any:
        """Calls with the good samples; counts the others."""
        if good.all():  # the faulty ones are another rank's
            return call(args, kwargs)
        outputs = self._predict_parts(adapted, call, args, kwargs, good)
        self._note(adapted, good)
        return outputs

    def _predict_parts(
        self, adapted: AdaptedModel, call: Call, args: Any, kwargs: Any, good: Tensor
    ) -> Any:
        """First the faulty ones: if that fails, nothing has been adapted yet."""
        size, all_args = len(good), (args, dict(kwargs))
        bad_args, bad_kwargs = map_tensors(repair, chosen(all_args, ~good, size))
        with torch.no_grad():
            bad_outputs = adapted.network(*bad_args, **bad_kwargs)
        if self.output == "nan":
            bad_outputs = map_tensors(_all_nan, bad_outputs)
        if not good.any() and adapted.replicas is None:
            return bad_outputs
        outputs = call(*chosen(all_args, good, size))
        return merged(outputs, bad_outputs, good)

    def _note(self, adapted: AdaptedModel, good: Tensor) -> None:
        bad = int((~good).sum())
        level = logging.INFO if adapted.counts.excluded else logging.WARNING  # the first is news
        _LOG.log(level, "%d of %d samples left out: NaN or Inf", bad, len(good))
        adapted.counts.excluded += bad
        adapted.kept = good


def survivors(network: nn.Module, args: Any, kwargs: Any, good: Tensor) -> Tensor:
    """Which of the good samples the network as trained can take without NaN or Inf, (image,).

    Looked at are its outputs and, as a variance squares them, what reaches its BatchNorm layers.
    """
    size = int(good.sum())
    if not size:
        return good
    args, kwargs = chosen((args, dict(kwargs)), good, len(good))
    finite = torch.ones(size, dtype=torch.bool, device=good.device)

    def look(inputs: Tensor) -> None:
        if inputs.ndim and len(inputs) == size and inputs.is_floating_point():
            wide = inputs.detach().reshape(size, -1).to(torch.promote_types(inputs.dtype, _WIDE))
            finite.logical_and_(torch.isfinite(wide.square().sum(dim=1)).to(finite.device))

    with _looking(network, look), torch.no_grad():
        for output in tensors_in(network(*args, **kwargs)):
            if output.ndim and len(output) == size and output.is_floating_point():
                rows = torch.isfinite(output).reshape(size, -1).all(dim=1)
                finite.logical_and_(rows.to(finite.device))
    return good.masked_scatter(good, finite)


_WIDE = torch.float32


@contextmanager
def _looking(network: nn.Module, look: Any) -> Iterator[None]:
    """Calls `look` with what reaches every BatchNorm layer."""
    layers = [module for module in network.modules() if isinstance(module, AdaptiveBatchNorm)]
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: look(*inputs)) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def chosen(arguments: Any, which: Tensor, size: int) -> Any:
    """The same arguments with some of the samples: of tensors (image, ...) and lists of images."""
    if isinstance(arguments, Tensor):
        batched = arguments.ndim and len(arguments) == size
        return arguments[which.to(arguments.device)] if batched else arguments
    if isinstance(arguments, tuple):
        return tuple(chosen(each, which, size) for each in arguments)
    if isinstance(arguments, dict):
        return {name: chosen(each, which, size) for name, each in arguments.items()}
    if _is_list_of_samples(arguments, size):
        return [each for each, wanted in zip(arguments, which.tolist(), strict=True) if wanted]
    return map_tensors(lambda tensor: chosen(tensor, which, size), arguments)


def _is_list_of_samples(value: Any, size: int) -> bool:
    """One entry a sample, as detection has: images (channel, row, column) or dicts."""
    if not isinstance(value, list) or len(value) != size:
        return False
    images = all(isinstance(each, Tensor) and each.ndim == 3 for each in value)
    return images or all(isinstance(each, dict) for each in value)


def repair(images: Tensor) -> Tensor:
    """Every NaN and Inf becomes the mean of the sample's other values, 0 if there is none."""
    if not images.is_floating_point() or images.ndim == 0:
        return images
    finite = torch.isfinite(images)
    inner = tuple(range(1, images.ndim))
    values = torch.where(finite, images, 0)
    if inner:
        counts = finite.sum(dim=inner, keepdim=True).clamp_min(1)
        return torch.where(finite, images, (values / counts).sum(dim=inner, keepdim=True))
    return values


def merged(good_outputs: Any, bad_outputs: Any, good: Tensor) -> Any:
    """Both outputs, every sample in its place; what is not by sample is the good ones'."""
    if _is_by_sample(good_outputs, int(good.sum())) and _is_by_sample(
        bad_outputs, int((~good).sum())
    ):
        entries = {True: iter(good_outputs), False: iter(bad_outputs)}
        return [next(entries[each]) for each in good.tolist()]
    bad_tensors = iter(tensors_in(bad_outputs))
    return map_tensors(lambda rows: _in_place(rows, next(bad_tensors, None), good), good_outputs)


def _is_by_sample(outputs: Any, count: int) -> bool:
    """A list with an entry a sample, as detection returns; not one of tensors (image, ...)."""
    if not isinstance(outputs, list) or len(outputs) != count:
        return False
    return not all(isinstance(each, Tensor) and len(each) == count for each in outputs)


def _in_place(good_rows: Tensor, bad_rows: Tensor | None, good: Tensor) -> Tensor:
    """Rows of both, (image, ...). Never fails: the batch has been adapted to."""
    if good_rows.ndim == 0 or len(good_rows) != int(good.sum()):
        return good_rows
    places = good.to(good_rows.device)
    rows = good_rows.new_zeros(len(good), *good_rows.shape[1:])
    rows[places] = good_rows
    if bad_rows is not None and bad_rows.shape[1:] == rows.shape[1:]:
        rows[~places] = bad_rows.to(rows)
    elif rows.is_floating_point():  # the network made another shape of them
        rows[~places] = torch.nan
    return rows


def _all_nan(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else tensor
