"""nonfinite="skip": leaves samples with NaN or Inf out of the adaptation.

The other samples are predicted and learned from as if the bad ones had not come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from realistic_tta.core.adapted_model import Prediction, State, Wrapper
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import map_tensors, tensors_in
from realistic_tta.core.settings import Settings

_LOG = logging.getLogger("realistic_tta")


@dataclass(frozen=True)
class NonFinite(Settings):
    """output: the prediction for a sample that is skipped.

    "source": that of the model as trained, with every NaN and Inf replaced by the mean of the
    sample's other values. "nan": NaN; integer outputs are those of the source.
    """

    output: Literal["source", "nan"] = "source"


class SkipNonFinite(Wrapper):
    """Adapts to the finite samples of a batch only.

    A sample is skipped if it holds NaN or Inf, or values so large that their squares overflow.
    State: `skipped`, the number of samples so far.
    """

    name = "nonfinite"
    settings_type = NonFinite
    _settings: NonFinite

    def _initial_state(self) -> State:
        return {"skipped": torch.zeros((), dtype=torch.int64, device=self._device)}

    def _reset_updates(self) -> Any:
        return self._inner._reset_updates()  # the count goes on over a reset

    def _counts(self) -> dict[str, int]:
        return {"skipped": int(self._state()["skipped"]), **self._inner._counts()}

    def _admit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Batch:
        return Batch.of(args, kwargs)  # checked once the bad samples are gone

    def _predict(self, batch: Batch) -> Prediction:
        good = batch.finite_samples() if batch.size else torch.ones(0, dtype=torch.bool)
        if good.all():
            return self._predict_good(batch)
        repaired = _map_batch(repair, batch.select(~good))
        outputs = self._inner._run_source(repaired)
        if self._settings.output == "nan":
            outputs = map_tensors(_all_nan, outputs)
        skipped, total = int((~good).sum()), self._state()["skipped"]
        _LOG.log(
            logging.INFO if total else logging.WARNING,  # only the first one is news
            "%d of %d samples skipped: NaN, Inf or overflow",
            skipped,
            batch.size,
        )
        state = {"skipped": total + skipped}
        if not good.any() and self._innermost._group is None:
            return Prediction(outputs, ((self._buffers, state),))
        prediction = self._predict_good(batch.select(good))
        return self._with(prediction, merge_samples(prediction.outputs, outputs, good), **state)

    def _predict_good(self, batch: Batch) -> Prediction:
        return self._inner._predict(self._inner._admit(batch.args, batch.kwargs))


def repair(images: Tensor) -> Tensor:
    """Replaces every NaN and Inf by the mean of the sample's other values, 0 if there is none.

    Values whose squares overflow count as Inf.
    """
    if not images.is_floating_point() or images.ndim == 0:
        return images
    finite = torch.isfinite(images) & torch.isfinite(images.float().square())
    inner = tuple(range(1, images.ndim))
    values = torch.where(finite, images, 0)
    if not inner:
        return values
    counts = finite.sum(dim=inner, keepdim=True).clamp_min(1)
    return torch.where(finite, images, (values / counts).sum(dim=inner, keepdim=True))


def merge_samples(good_outputs: Any, bad_outputs: Any, good: Tensor) -> Any:
    """Both outputs with every sample in its place; what is not per sample is the good ones'."""
    if _is_list_per_sample(good_outputs, good) and _is_list_per_sample(bad_outputs, ~good):
        entries = {True: iter(good_outputs), False: iter(bad_outputs)}
        return [next(entries[each]) for each in good.tolist()]
    bad_tensors = iter(tensors_in(bad_outputs))
    return map_tensors(lambda rows: _merge_rows(rows, next(bad_tensors, None), good), good_outputs)


def _is_list_per_sample(outputs: Any, which: Tensor) -> bool:
    """Whether it is a list with one entry per sample, as detection models return."""
    count = int(which.sum())
    if not isinstance(outputs, list) or len(outputs) != count:
        return False
    return not all(isinstance(each, Tensor) and len(each) == count for each in outputs)


def _merge_rows(good_rows: Tensor, bad_rows: Tensor | None, good: Tensor) -> Tensor:
    if good_rows.ndim == 0 or len(good_rows) != int(good.sum()):
        return good_rows
    places = good.to(good_rows.device)
    rows = good_rows.new_zeros(len(good), *good_rows.shape[1:])
    rows[places] = good_rows
    if bad_rows is not None and bad_rows.shape[1:] == rows.shape[1:]:
        rows[~places] = bad_rows.to(rows)
    elif rows.is_floating_point():  # the model returned another shape for them
        rows[~places] = torch.nan
    return rows


def _map_batch(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    args, kwargs = map_tensors(function, (batch.args, dict(batch.kwargs)))
    return Batch(args, kwargs, batch.size)


def _all_nan(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else tensor
