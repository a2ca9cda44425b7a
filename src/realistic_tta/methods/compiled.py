"""Runs a method's `predict` through torch.compile: adapt(..., compile=True).

Checks stay outside the graph; what a graph cannot stop for, an overflow inside the network, is
found afterwards: the graph then leaves every buffer as it was, the count of batches too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from realistic_tta.errors import NonFiniteError

from .batch import Batch
from .outputs import tensors_in

if TYPE_CHECKING:
    from .base import AdaptedModel

MOST_SHAPES = 8  # compiled for one network: each takes up to a minute


class CompiledPredict:
    """One graph for each shape of batch, made when a shape comes for the second time.

    So the odd last batch of a stream costs no minute of compiling. A copy, or what is read back
    from a file, compiles anew. Where nothing can be compiled it says so, once, and runs as it is.
    """

    def __init__(self) -> None:
        self.seen: set[tuple[Any, ...]] = set()
        self.shapes: set[tuple[Any, ...]] = set()  # that came twice, and are compiled
        self.graph: Callable[..., Any] | None = None
        self.works = True
        self.backend = "inductor"

    def __reduce__(self) -> tuple[type[CompiledPredict], tuple[()]]:
        return CompiledPredict, ()

    def __call__(self, adapted: AdaptedModel, batch: Batch) -> Any:
        """What adapted.predict(batch) gives, and changes."""
        shape = tuple(_signature(each) for each in tensors_in((batch.args, dict(batch.kwargs))))
        if not self.works or not self._is_for_a_graph(shape):
            return adapted.predict(batch)
        before = int(adapted.step)
        try:
            outputs = self._graph_of(adapted)(batch.size, *batch.args, **batch.kwargs)
        except Exception as error:
            if not _is_of_the_compiler(error):
                raise
            self.works = False
            warnings.warn(_sorry(error), stacklevel=4)
            return adapted.predict(batch)
        if int(adapted.step) == before:
            raise NonFiniteError(
                "a layer measured NaN or Inf, though the images are finite: values overflow inside "
                "the network. Check the scale of the images, or use a wider type. "
                "No statistic was changed"
            )
        return outputs

    def forget_graphs(self) -> None:
        """They are made anew when next needed: the network is no longer what they were made of."""
        self.graph = None

    def _is_for_a_graph(self, shape: tuple[Any, ...]) -> bool:
        """Whether the shape has come before, and there is room for its graph."""
        if shape not in self.shapes and len(self.shapes) < MOST_SHAPES:
            (self.shapes if shape in self.seen else self.seen).add(shape)
        return shape in self.shapes

    def _graph_of(self, adapted: AdaptedModel) -> Callable[..., Any]:
        if self.graph is None:

            def predict(size: int, *args: Any, **kwargs: Any) -> Any:
                return adapted.predict(Batch(args, kwargs, size))

            # torch.compile knows its graphs by the code, and this one may be some other network's.
            predict.__code__ = predict.__code__.replace()
            self.graph = torch.compile(
                predict, fullgraph=True, dynamic=False, backend=self.backend, options=_guards()
            )
        return self.graph


def _guards() -> dict[str, Any] | None:
    """What a graph is checked against in each call: the call itself, and torch's own switches.

    torch.compile would look at every layer and setting of the network as well, a thousand of them,
    which takes as long as two layers of a ResNet-20. They are this package's own, and stay; where
    they do change, in `_apply` and `load_state_dict`, the graphs are forgotten.
    """
    if not hasattr(torch.compiler, "keep_tensor_guards_unsafe"):  # torch before 2.8
        return None
    return {"guard_filter_fn": lambda guards: [_is_of_the_call(guard.name) for guard in guards]}


def _is_of_the_call(name: str) -> bool:
    """Whether a guard looks at an argument of `predict`; those of torch's switches have no name."""
    return not name or name.startswith(("size", "args", "kwargs"))


def _signature(tensor: Tensor) -> tuple[Any, ...]:
    """What a graph is made for."""
    return (
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        torch.is_autocast_enabled(tensor.device.type),
        torch.get_autocast_dtype(tensor.device.type),
    )


def _is_of_the_compiler(error: BaseException) -> bool:
    """Whether torch.compile gave up, and not the network."""
    module = type(error).__module__
    return module.startswith(("torch._dynamo", "torch._inductor"))


def _sorry(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = next((line for line in lines if not line.endswith("raised:")), type(error).__name__)
    return (
        f"torch.compile could not compile this network ({reason}); it adapts all the same, "
        "uncompiled. A C++ compiler is needed (for instance g++), and a network that "
        "torch.compile(network, fullgraph=True) takes"
    )
