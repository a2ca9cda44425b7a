"""compile=True: runs each batch as one graph of torch.compile.

The graph is a pure function of the batch and the state. Checks stay outside: a graph cannot raise,
so values that overflow inside the model are found in the state that it returns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State, Wrapper
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import tensors_in
from realistic_tta.core.settings import Settings
from realistic_tta.errors import NonFiniteError, OptionError

MAX_SHAPES = 8  # graphs of one model: each takes up to a minute to compile


@dataclass(frozen=True)
class Compile(Settings):
    """compile has no hyperparameters."""


class Compiled(Wrapper):
    """Compiles a method, one graph per shape of batch, when a shape comes for the second time.

    The odd last batch of a stream therefore costs no compilation. A copy compiles anew. If nothing
    can be compiled, it warns once and runs without.
    """

    name = "compile"
    settings_type = Compile

    def __init__(self, inner: AdaptedModel, settings: Compile) -> None:
        if not inner.compiles:
            raise OptionError(
                f"compile=True is not supported with {inner.name}: it trains, or its control flow "
                "depends on the values of a batch"
            )
        super().__init__(inner, settings)
        self._graphs = _Graphs()

    def _predict(self, batch: Batch) -> Prediction:
        shape = tuple(_signature(each) for each in tensors_in((batch.args, dict(batch.kwargs))))
        if not self._graphs.takes(shape):
            return self._inner._predict(batch)
        try:
            predict = self._graphs.get(self._inner)
            outputs, state = predict(batch.size, *batch.args, **batch.kwargs)
        except Exception as error:
            if not _is_compiler_error(error):
                raise
            prediction = self._inner._predict(batch)  # raises if it is the batch that does not fit
            self._graphs.works = False
            warnings.warn(_describe(error), stacklevel=4)
            return prediction
        _check_finite(state)
        return Prediction(outputs, ((self._inner._buffers, state),))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        self._graphs = _Graphs()
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._graphs = _Graphs()  # the state may hold other weights of the model
        super()._load_from_state_dict(*args, **kwargs)


class _Graphs:
    """The compiled graphs of one model, and the shapes that they are for."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, ...]] = set()
        self.shapes: set[tuple[Any, ...]] = set()  # seen twice, and compiled
        self.predict: Callable[..., Any] | None = None
        self.works = True

    def __reduce__(self) -> tuple[type[_Graphs], tuple[()]]:
        return _Graphs, ()

    def takes(self, shape: tuple[Any, ...]) -> bool:
        """Whether the shape has come before, and there is room for its graph."""
        if self.works and shape not in self.shapes and len(self.shapes) < MAX_SHAPES:
            (self.shapes if shape in self.seen else self.seen).add(shape)
        return self.works and shape in self.shapes

    def get(self, adapted: AdaptedModel) -> Callable[..., Any]:
        """The function to call, compiled when it is first called with a shape."""
        if self.predict is None:

            def predict(size: int, *args: Any, **kwargs: Any) -> tuple[Any, State]:
                prediction = adapted._predict(Batch(args, kwargs, size))
                return prediction.outputs, prediction.updates[0][1]

            # torch.compile finds its graphs by the code object, which other models share.
            predict.__code__ = predict.__code__.replace()
            self.predict = torch.compile(predict, fullgraph=True, dynamic=False, options=_guards())
        return self.predict


def _guards() -> dict[str, Any] | None:
    """Checks a graph against the arguments of the call and torch's own switches only.

    By default torch.compile would check every layer and hyperparameter as well, a thousand of
    them. They do not change, except in `_apply` and `load_state_dict`, which drop the graphs.
    """
    if not hasattr(torch.compiler, "keep_tensor_guards_unsafe"):  # torch before 2.8
        return None
    return {"guard_filter_fn": lambda guards: [_is_about_the_call(each.name) for each in guards]}


def _is_about_the_call(name: str) -> bool:
    """Whether a guard is about an argument of `predict`; torch's switches have no name."""
    return not name or name.startswith(("size", "args", "kwargs"))


def _signature(tensor: Tensor) -> tuple[Any, ...]:
    """Everything about an argument that a graph depends on."""
    return (
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        torch.is_autocast_enabled(tensor.device.type),
        torch.get_autocast_dtype(tensor.device.type),
    )


def _check_finite(state: State) -> None:
    sums = [each.sum() for each in state.values() if each.is_floating_point()]
    if sums and not torch.isfinite(torch.stack(sums)).all():
        raise NonFiniteError(
            "a layer measured NaN or Inf, though the images are finite: values overflow inside the "
            "model. Check the scale of the images, or use a wider dtype. Nothing was changed"
        )


def _is_compiler_error(error: BaseException) -> bool:
    """Whether torch.compile gave up, rather than the model."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))


def _describe(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = next((line for line in lines if not line.endswith("raised:")), type(error).__name__)
    return (
        f"torch.compile could not compile this model ({reason}); it adapts without. A C++ compiler "
        "is needed (for instance g++), and a model that torch.compile(model, fullgraph=True) takes"
    )
