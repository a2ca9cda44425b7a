"""The contract of every method and wrapper: a model that adapts while it predicts.

One call: `forward` checks the batch, `_predict` computes outputs and the next state without
changing anything, and `_commit` stores the state of all levels at once. A call that raises or is
interrupted therefore changes nothing.

A method writes `_initial_state`, `_predict`, `freeze` and `report`. A `Wrapper` has the same
interface around another adapted model.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from realistic_tta.errors import (
    ForwardError,
    InputError,
    OptionError,
    RealisticTTAError,
    StateError,
)
from realistic_tta.layers.adaptive_layers import device_of, keep_precision
from realistic_tta.layers.process_group import ProcessGroup

from .batch import Batch
from .failure import describe_failure
from .report import Report
from .settings import Settings

State = dict[str, Tensor]  # everything a method or wrapper remembers between batches, by name
Updates = tuple[tuple[dict[str, Tensor | None], State], ...]  # buffers of a level, and new values


@dataclass(frozen=True)
class Prediction:
    """The outputs for a batch, and the state that every level will have after it."""

    outputs: Any
    updates: Updates


class AdaptedModel(nn.Module, ABC):
    """A model that adapts to the batches it predicts, without labels.

    Call it like the original model, with a batch of any size. The copy of the model inside stays
    in eval mode. Attributes that it does not define are looked up in the model.

    >>> from realistic_tta import AdaptedModel, adapt
    >>> isinstance(adapt(nn.BatchNorm1d(3)), AdaptedModel)
    True
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[Settings]]
    compiles: ClassVar[bool] = False  # whether `_predict` can be one graph of torch.compile
    takes_process_group: ClassVar[bool] = False
    _group: ProcessGroup | None = None

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        super().__init__()
        self._model = model.eval()
        self._settings = settings

    @abstractmethod
    def _initial_state(self) -> State:
        """The state before the first batch."""

    @abstractmethod
    def _predict(self, batch: Batch) -> Prediction:
        """The outputs for a batch and the state after it. Changes nothing."""

    @abstractmethod
    def freeze(self) -> nn.Module:
        """A plain copy of the original model that predicts as this one would now."""

    @abstractmethod
    def report(self) -> Report:
        """The layers that are adapted, those that are skipped, and the figures of each."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adapts to the batch and returns the model's output for it."""
        with torch.inference_mode(mode=False), torch.no_grad():
            batch = self._admit(args, kwargs)
            prediction = self._predict(batch)
            if (group := self._innermost._group) is not None:
                group.agree()
            _commit(prediction.updates)
        return prediction.outputs

    def reset(self) -> None:
        """Forgets everything: the next batch is predicted as if it were the first."""
        with torch.inference_mode(mode=False), torch.no_grad():
            _commit(self._reset_updates())

    def _admit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Batch:
        """Checks the arguments; with a process group, agrees on the size of the batch with it."""
        batch = Batch.of(args, kwargs)
        if self._group is None:
            batch.check(self._model)
            return batch
        try:
            if batch.size:  # a process may have no images, as long as another one has
                batch.check(self._model)
        except InputError:
            self._group.refuse(self._batches)
            raise
        return dataclasses.replace(batch, size=self._group.begin(batch.size, self._batches))

    def _reset_updates(self) -> Updates:
        return ((self._buffers, self._initial_state()),)

    def _register_state(self) -> None:
        """Registers the initial state as buffers."""
        self._buffers.update(self._initial_state())  # register_buffer looks names up in the model

    @property
    def _device(self) -> torch.device:
        return device_of(self._model)

    def _zero_batches(self) -> Tensor:
        return torch.zeros((), dtype=torch.int64, device=self._device)

    @property
    def _batches(self) -> Tensor:
        """The number of batches since the last reset."""
        count = self._buffers["batches"]
        assert count is not None
        return count

    @property
    def _innermost(self) -> AdaptedModel:
        """The method itself, inside all wrappers."""
        return self

    def _levels(self) -> Iterator[AdaptedModel]:
        """This adapted model and all that it wraps, from the outside to the method."""
        yield self

    def _counts(self) -> dict[str, int]:
        """Counters of wrappers, for `health`."""
        return {}

    def _state(self) -> State:
        """The present state."""
        return {name: value for name, value in self._buffers.items() if value is not None}

    def _after(self, outputs: Any, **state: Tensor) -> Prediction:
        """The prediction of a method: outputs, and new values of some of its state."""
        return Prediction(outputs, ((self._buffers, {**state, "batches": self._batches + 1}),))

    def _run(self, batch: Batch) -> Any:
        """One forward pass of the model as it stands."""
        return run_model(self._model, batch)

    def _run_source(self, batch: Batch) -> Any:
        """One forward pass of the model as trained."""
        return self._run(batch)

    def _join(self, group: ProcessGroup) -> None:
        """Merges statistics with the other processes of a group from now on."""
        if not self.takes_process_group:
            raise OptionError(
                f"{self.name} does not support process_group; the methods that replace BatchNorm "
                "statistics do: tbn, alpha_bn, adapt_bn, tema, rectified_tema and realistic"
            )
        self._group = group

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,  # noqa: FBT001, FBT002 - torch's signature
        assign: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    ) -> Any:
        """Restores a state from `state_dict`, bit-identical; a state that does not fit raises."""
        problems = list(self._mismatches(state_dict, strict=strict))
        if problems:
            more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise StateError(
                f"this state does not belong to {self.name} on this model: "
                f"{'; '.join(problems[:5])}{more}. Nothing was loaded; "
                "adapt the same model with the same method and options first"
            )
        return super().load_state_dict(state_dict, strict, assign)

    def _mismatches(self, state_dict: Mapping[str, Any], *, strict: bool) -> Iterator[str]:
        """How a state differs from this model's, in words."""
        own, resizable = self.state_dict(), self._resizable()
        for key in own:
            if key not in state_dict:
                if strict:
                    yield f'"{key}" is missing'
            elif problem := _mismatch(state_dict[key], own[key], resizable=key in resizable):
                yield f'"{key}" {problem}'
        for key in state_dict:
            if strict and key not in own:
                yield f'"{key}" is unknown'

    def _resizable(self) -> set[str]:
        """The keys of the state whose shapes and dtypes depend on the images seen."""
        return set()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *others: Any, **more: Any
    ) -> None:
        """Takes the state of this level by replacing its buffers, as `_commit` does."""
        own, resizable = dict(self._buffers), self._resizable()
        for name, value in own.items():
            given = state_dict.get(prefix + name)
            if given is not None and value is not None:
                dtype = given.dtype if name in resizable else value.dtype
                with torch.inference_mode(mode=False):
                    self._buffers[name] = given.detach().to(value.device, dtype, copy=True)
        super()._load_from_state_dict(state_dict, prefix, *others, **more)

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        """Sets the flag that torch expects; the model inside stays in eval mode."""
        super().train(mode)
        self._model.eval()
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        """Follows `.to`, `.half` and the like, but keeps the state in float32 or better."""
        before = dict(self._buffers)
        with torch.inference_mode(mode=False):
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            keep_precision(self, before)
        return self

    def __getattr__(self, name: str) -> Any:
        """Attributes without an underscore are those of the model."""
        model = self.__dict__.get("_modules", {}).get("_model")
        if name.startswith("_") or model is None:
            return super().__getattr__(name)
        return getattr(model, name)


class Wrapper(AdaptedModel):
    """An adapted model around another one, with the same interface.

    It keeps its own state in its own buffers. It calls `_predict` of the model inside, which
    changes nothing, and returns the state of both levels in one prediction.
    """

    def __init__(self, inner: AdaptedModel, settings: Settings) -> None:
        super().__init__(inner, settings)
        self._register_state()

    @property
    def _inner(self) -> AdaptedModel:
        inner = self._modules["_model"]
        assert isinstance(inner, AdaptedModel)
        return inner

    @property
    def _innermost(self) -> AdaptedModel:
        return self._inner._innermost

    def _levels(self) -> Iterator[AdaptedModel]:
        yield self
        yield from self._inner._levels()

    def _initial_state(self) -> State:
        return {}

    def _admit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Batch:
        return self._inner._admit(args, kwargs)

    def _predict(self, batch: Batch) -> Prediction:
        return self._inner._predict(batch)

    def _reset_updates(self) -> Updates:
        return (*self._inner._reset_updates(), (self._buffers, self._initial_state()))

    def _with(self, prediction: Prediction, outputs: Any, **state: Tensor) -> Prediction:
        """The prediction of the model inside with other outputs, and new state of this level."""
        return Prediction(outputs, (*prediction.updates, (self._buffers, state)))

    def _counts(self) -> dict[str, int]:
        return self._inner._counts()

    def _run_source(self, batch: Batch) -> Any:
        return self._inner._run_source(batch)

    def freeze(self) -> nn.Module:
        """A plain copy of the original model; it does not contain the work of the wrapper."""
        return self._inner.freeze()

    def report(self) -> Report:
        """The report of the model inside."""
        return self._inner.report()

    def _resizable(self) -> set[str]:
        return {f"_model.{key}" for key in self._inner._resizable()}


def run_model(model: nn.Module, batch: Batch) -> Any:
    """One forward pass; an error says which layer failed, and on what."""
    try:
        return model(*batch.args, **batch.kwargs)
    except RealisticTTAError:
        raise
    except Exception as error:
        message = describe_failure(error, model, batch)
        if type(error) is RuntimeError:  # torch raises it for shapes that do not fit
            raise ForwardError(f"{error}\n{message}") from error
        error.add_note(message)
        raise


def _commit(updates: Updates) -> None:
    """Stores the new state of every level.

    `deque` and `map` run in C, so no signal handler can run between two levels.
    """
    buffers = [level for level, _ in updates]
    values = [new for _, new in updates]
    deque(map(dict.update, buffers, values), maxlen=0)


def _mismatch(given: Any, own: Any, *, resizable: bool) -> str | None:
    """Why a value cannot replace one of the state; None if it can."""
    if not isinstance(own, Tensor) or not isinstance(given, Tensor):
        same = type(given) is type(own)
        return None if same else f"is a {type(given).__name__}, expected {type(own).__name__}"
    if given.ndim != own.ndim or (given.shape != own.shape and not resizable):
        return f"has shape {tuple(given.shape)}, expected {tuple(own.shape)}"
    if given.is_meta and not own.is_meta:
        return "has no values (it is on the meta device)"
    if given.is_floating_point() != own.is_floating_point():
        return f"is {given.dtype}, expected {own.dtype}"
    return None
