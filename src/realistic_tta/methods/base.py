"""What every method shares: a network that is used like the original and adapts while it predicts.

A method writes `predict`, `reset`, `freeze` and `report`; checks, messages and state are here.
in_service.py, below it, has what a network needs that runs for days; batch_norm_method.py builds
on it what the methods that replace statistics share.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parallel import DistributedDataParallel

from realistic_tta.errors import (
    ForwardError,
    InputError,
    ModelError,
    NonFiniteError,
    RealisticTTAError,
    SettingError,
    StateError,
)
from realistic_tta.layers.replicas import Replicas

from .bad_samples import Exclusion
from .batch import Batch
from .compiled import CompiledPredict
from .failure import describe_failure
from .in_service import InService
from .report import Report
from .ring import NewRows


class AdaptedModel(InService, ABC):
    """A network that adapts to what it is shown.

    Call it as you would call the network, with a batch of any size. It works on its own copy of
    the network, which stays in eval mode (dropout off) whatever `train` is told.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]
    compiles: ClassVar[bool] = False  # whether a batch can be one graph of torch.compile
    takes_replicas: ClassVar[bool] = False  # whether its statistics can be those of many processes
    replicas: Replicas | None = None
    exclusion: Exclusion | None = None  # of samples with NaN or Inf; without it they raise
    step: Tensor

    def __init__(self, network: nn.Module, settings: Any) -> None:
        super().__init__()
        self.settings = settings
        self.compiled: CompiledPredict | None = None
        self.network = copy_network(network).eval()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64, device=device_of(network)))

    @abstractmethod
    def predict(self, batch: Batch) -> Any:
        """Adapts to one batch and returns the network's output for it."""

    @abstractmethod
    def reset(self) -> None:
        """Forgets everything seen: the next batch is predicted as if it were the first."""

    @abstractmethod
    def freeze(self) -> nn.Module:
        """A plain copy of the original network that predicts as this one would now."""

    @abstractmethod
    def report(self) -> Report:
        """What was replaced in the network, what was left alone, and what each layer does."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adapts to the batch, then predicts it. Arguments and output are the network's own."""
        if torch.compiler.is_compiling():
            return self.adapt_to(args, kwargs)
        if self.guard is None:
            return self.without_faulty(self.adapt_to, args, kwargs)
        return self.guard.predict(self, args, kwargs)

    def without_faulty(self, predict: Callable[[Any, Any], Any], args: Any, kwargs: Any) -> Any:
        """What `adapt_to` or `run_source` makes of the batch, or of the good samples in it."""
        if self.exclusion is None:
            return predict(args, kwargs)
        try:
            return predict(args, kwargs)
        except NonFiniteError as error:
            return self.exclusion.predict(self, predict, args, kwargs, error)

    def adapt_to(self, args: Any, kwargs: Any) -> Any:
        """Adapts to the whole batch, then predicts it."""
        batch = (
            Batch.of(self.network, args, kwargs)
            if self.replicas is None
            else self._part_of_batch(self.replicas, args, kwargs)
        )
        with torch.no_grad():
            if self.compiled is None or torch.compiler.is_compiling():
                return self.predict(batch)
            return self.compiled(self, batch)

    def run_source(self, args: Any, kwargs: Any) -> Any:
        """What the network as trained says of the batch; nothing is changed."""
        with torch.no_grad():
            return self.run(Batch.of(self.network, args, kwargs))

    def share_with(self, replicas: Replicas) -> None:
        """From now on the statistics are those of all processes of the group."""
        if not self.takes_replicas:
            raise SettingError(
                f"{self.name} cannot be shared by several processes; methods that replace "
                "statistics can: tbn, alpha_bn, adapt_bn, tema, rectified_tema and realistic"
            )
        self.replicas = replicas

    def _part_of_batch(self, replicas: Replicas, args: Any, kwargs: Any) -> Batch:
        """This process's images, of which there may be none; the size is that of all together."""
        try:
            batch = Batch.of(self.network, args, kwargs, may_be_empty=True)
        except InputError as error:
            if self.exclusion is None or not isinstance(error, NonFiniteError):
                replicas.refuse(self.step)  # else it is about to come with the rest of its images
            raise
        return dataclasses.replace(batch, size=replicas.begin(batch.size, self.step))

    def run(self, batch: Batch) -> Any:
        """One pass of the network, as it stands, over the batch."""
        try:
            return self.network(*batch.args, **batch.kwargs)
        except RealisticTTAError:
            raise
        except Exception as error:
            message = describe_failure(error, self.network, batch)
            if type(error) is RuntimeError:  # torch's own word for shapes that do not fit
                raise ForwardError(f"{error}\n{message}") from error
            error.add_note(message)
            raise

    def remember(self, batches: int = 1, /, **values: Tensor | NewRows) -> None:
        """Stores new values of the named buffers and counts the batches: all of it, or nothing.

        One call into torch, so that no interrupt falls between two of the copies.
        """
        copies = [(self.step, self.step + batches)]
        for name, value in values.items():
            buffer = self._buffers[
                name
            ]  # get_buffer looks for a module first, twenty times a batch
            assert buffer is not None
            copies += value.copies_into(buffer) if isinstance(value, NewRows) else [(buffer, value)]
        if self.replicas is not None:
            self.replicas.agree(self.step)
        buffers, new = zip(*copies, strict=True)
        if torch.compiler.is_compiling():
            new = tuple(_unless_broken(buffers, new))
        torch._foreach_copy_(buffers, new)

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,  # noqa: FBT001, FBT002 - torch's signature
        assign: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    ) -> Any:
        """Continues from a saved state, to the last bit; one that does not fit is refused whole."""
        own = self.state_dict()
        differences = [f'"{key}" is missing' for key in own if strict and key not in state_dict]
        differences += [f'"{key}" is unknown' for key in state_dict if strict and key not in own]
        differences += [
            f'"{key}" has shape {_shape(state_dict[key])}, expected {_shape(own[key])}'
            for key in own
            if key in state_dict and _shape(state_dict[key]) != _shape(own[key])
        ]
        if differences:
            more = f" and {len(differences) - 5} more" if len(differences) > 5 else ""
            raise StateError(
                f"this state does not belong to {self.name} on this network: "
                f"{'; '.join(differences[:5])}{more}. Nothing was loaded; "
                "adapt the same network with the same method first"
            )
        self._is_changed()  # a state may carry other weights of the network, too
        return super().load_state_dict(state_dict, strict, assign)

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        """Sets the flag that torch expects; the network inside stays in eval mode."""
        super().train(mode)
        self.network.eval()
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        """Follows .to, .half and the like, but keeps what was measured in float32 or better."""
        before = dict(self.named_buffers(recurse=False))
        self._is_changed()
        with torch.inference_mode(mode=False):  # what it makes may have to carry gradients
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, after in self.named_buffers(recurse=False):
            if after.is_floating_point() and after.dtype.itemsize < torch.float32.itemsize:
                self.register_buffer(name, before[name].to(after.device))
        return self

    def _is_changed(self) -> None:
        """What was made of the network as it stood no longer holds."""
        self.known_fingerprint = None
        if self.compiled is not None:
            self.compiled.forget_graphs()


def _unless_broken(old: Sequence[Tensor], new: Sequence[Tensor]) -> list[Tensor]:
    """The new values if all are finite, else the old: a compiled graph cannot stop to complain."""
    finite = torch.stack([torch.isfinite(each).all() for each in new]).all()
    return [torch.where(finite, *each) for each in zip(new, old, strict=True)]


def _shape(value: Any) -> tuple[int, ...] | None:
    """None for what is not a tensor: a network may keep other things in its state."""
    return tuple(value.shape) if isinstance(value, Tensor) else None


def copy_network(network: nn.Module) -> nn.Module:
    """A copy that shares nothing with the network; of what torch.compile or DataParallel wraps."""
    network = unwrap(network)
    for name, module in network.named_modules():
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():  # type: ignore[misc]
            raise ModelError(
                f'layer "{name}" ({type(module).__name__}) has no shape yet; '
                "run one batch through the network before adapting it"
            )
    try:
        return copy.deepcopy(network)
    except Exception as error:
        raise ModelError(f"the network cannot be copied (copy.deepcopy): {error}") from error


def unwrap(network: nn.Module) -> nn.Module:
    """What torch.compile or DataParallel wraps; else the network itself."""
    while (inner := _wrapped(network)) is not None:
        network = inner
    return network


def _wrapped(network: nn.Module) -> nn.Module | None:
    """What a wrapper runs, None for a network of its own."""
    if isinstance(network, nn.DataParallel | DistributedDataParallel):
        inner = network.module
    else:  # torch.compile's wrapper, known by its attribute: importing its class takes a second
        inner = getattr(network, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else None


def device_of(network: nn.Module) -> torch.device:
    """Where the network's first parameter or buffer is; the CPU if it has none."""
    for tensor in (*network.parameters(), *network.buffers()):
        return tensor.device
    return torch.device("cpu")
