"""The adapted model that `adapt` returns: calls from several threads, files, monitoring.

It is the outermost wrapper. After each batch it runs the hooks that were asked for.
"""

from __future__ import annotations

import copy
import io
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State, Updates, Wrapper
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import logits_in, widen
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Settings
from realistic_tta.errors import OptionError
from realistic_tta.functional.entropy import entropy

from .checkpoint import save_state
from .health import Health
from .lock import CallLock

_LOG = logging.getLogger("realistic_tta")
RECENT = 512  # predictions kept for `health`: 2 MB of logits for 1,000 classes

Hook = Callable[["ServedModel"], None]


@dataclass(frozen=True)
class Serving(Settings):
    """Serving has no hyperparameters."""


class ServedModel(Wrapper):
    """An adapted model for use in a program; `adapt` and `load` return one.

    Call it like the original model, with a batch of any size. Threads wait for each other.

    State: `counters`, the batches, images and resets since it was made, and `recent`, the logits of
    the last images, (image, class).

    >>> from realistic_tta import adapt
    >>> adapted = adapt(nn.BatchNorm1d(3))
    >>> logits = adapted(torch.rand(5, 3))
    >>> adapted.reset()
    """

    name = "serving"
    settings_type = Serving

    def __init__(self, inner: AdaptedModel) -> None:
        super().__init__(inner, Serving())
        self._lock = CallLock()
        self._hooks: OrderedDict[int, Hook] = OrderedDict()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adapts to the batch and returns the model's output; threads wait for each other."""
        # On one line, leaving the block is no line of its own, at which a tracer could raise.
        with self._lock.lock: return self._call(*args, **kwargs)  # noqa: E701  # fmt: skip

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        outputs = super().__call__(*args, **kwargs)
        for hook in tuple(self._hooks.values()):
            self._run_hook(hook)
        return outputs

    def _initial_state(self) -> State:
        return {
            "counters": torch.zeros(3, dtype=torch.int64, device=self._device),
            "recent": torch.zeros(0, 0, device=self._device),
        }

    def _resizable(self) -> set[str]:
        return {"recent", *super()._resizable()}

    def _predict(self, batch: Batch) -> Prediction:
        prediction = self._inner._predict(batch)
        state = self._state()
        counters = state["counters"]
        after = {"counters": counters + counters.new_tensor((1, batch.size, 0))}
        logits = logits_in(prediction.outputs)
        if logits is not None:
            recent = state["recent"]
            same = recent.shape[1] == logits.shape[1]
            joined = torch.cat((recent.to(logits), logits)) if same else logits.clone()
            after["recent"] = joined[-RECENT:]
        return self._with(prediction, prediction.outputs, **after)

    def reset(self) -> None:
        """Forgets everything: the next batch is predicted as if it were the first."""
        with self._lock.lock:
            super().reset()

    def _reset_updates(self) -> Updates:
        counters = self._state()["counters"]
        state = self._initial_state() | {"counters": counters + counters.new_tensor((0, 0, 1))}
        return (*self._inner._reset_updates(), (self._buffers, state))

    def freeze(self) -> nn.Module:
        """A plain copy of the original model that predicts as this one would now."""
        with self._lock.lock:
            return self._inner.freeze()

    def report(self) -> Report:
        """The layers that are adapted, those that are skipped, and the figures of each."""
        with self._lock.lock:
            return self._inner.report()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Restores a state from `state_dict`, bit-identical; a state that does not fit raises."""
        with self._lock.lock:
            return super().load_state_dict(*args, **kwargs)

    def save(self, path: str | Path) -> None:
        """Writes the state to a file, atomically; `realistic_tta.load` reads it.

        Args:
            path: the file. It is replaced if it exists.
        """
        with self._lock.lock:
            save_state(self, Path(path))

    def autosave(
        self,
        path: str | Path,
        *,
        every_batches: int | None = None,
        every_seconds: float | None = None,
    ) -> RemovableHandle:
        """Saves now, and again after so many batches or seconds, at the end of a batch.

        A later save that fails is logged, and tried again after the next batch. A copy of this
        model does not save itself.

        Args:
            path: the file, as for `save`.
            every_batches: how many batches lie between saves. At least one of the two is required.
            every_seconds: how many seconds lie between saves.

        Returns:
            A handle; `handle.remove()` ends the saving.

        Raises:
            OptionError: neither of the two is given, or one is not allowed.
        """
        autosave = _Autosave(Path(path), every_batches, every_seconds)
        self.save(path)  # an invalid path raises now, not later
        return self._add_hook(autosave)

    def register_health_hook(
        self, hook: Callable[[Health], None], every: int = 1
    ) -> RemovableHandle:
        """Calls the hook with `health()` after every so many batches.

        Args:
            hook: a function of one `Health`. If it raises, the error is logged.
            every: how many batches lie between calls.

        Returns:
            A handle; `handle.remove()` removes the hook.
        """
        if type(every) is not int or every < 1:
            raise OptionError(f"every is {every!r}; expected a whole number of 1 or more")
        batches = 0

        def count_and_call(served: ServedModel) -> None:
            nonlocal batches
            batches += 1
            if batches % every == 0:
                hook(served.health())

        return self._add_hook(count_and_call)

    def health(self) -> Health:
        """Counts, recent predictions and layers, as they are now."""
        with self._lock.lock, torch.no_grad():
            state = self._state()
            batches, images, resets = state["counters"].tolist()
            recent = widen(state["recent"])
            return Health(
                self._innermost.name,
                batches,
                images,
                resets,
                recent=len(recent),
                entropy=float(entropy(recent).mean()) if len(recent) else None,
                histogram=_histogram(recent),
                layers=self.report().layers,
                **self._counts(),
            )

    def _add_hook(self, hook: Hook) -> RemovableHandle:
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = hook
        return handle

    def _run_hook(self, hook: Hook) -> None:
        """The batch is predicted: an error in a hook is logged and not raised."""
        try:
            hook(self)
        except Exception:  # noqa: BLE001 - a hook may raise anything; it is logged whole
            _LOG.exception("a hook failed after a batch; the batch itself is predicted")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        with self._lock.lock:
            return super()._apply(fn, recurse)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy between two batches, with its own tensors and lock, and without hooks."""
        with self._lock.lock:
            other = type(self).__new__(type(self))
            memo[id(self)] = other
            content = {**self.__dict__, "_hooks": OrderedDict()}
            other.__dict__.update(copy.deepcopy(content, memo))
            return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as bytes: a spawned process would otherwise share the tensors' memory."""
        file = io.BytesIO()
        with self._lock.lock:
            torch.save({**self.__dict__, "_hooks": OrderedDict()}, file)
        return _unpickled, (type(self), file.getvalue())


class _Autosave:
    """Saves after so many batches, or once so many seconds have passed."""

    def __init__(self, path: Path, every_batches: int | None, every_seconds: float | None) -> None:
        if every_batches is None and every_seconds is None:
            raise OptionError("autosave needs every_batches=..., every_seconds=... or both")
        if every_batches is not None and (type(every_batches) is not int or every_batches < 1):
            raise OptionError(
                f"every_batches is {every_batches!r}; expected a whole number of 1 or more"
            )
        number = type(every_seconds) in (int, float)
        if every_seconds is not None and not (number and every_seconds >= 0):
            raise OptionError(f"every_seconds is {every_seconds!r}; expected a number of 0 or more")
        self.path, self.every_batches, self.every_seconds = path, every_batches, every_seconds
        self.batches, self.saved_at = 0, time.monotonic()

    def __call__(self, served: ServedModel) -> None:
        """Counts the batch, and saves if it is time; if that fails, the next batch tries again."""
        self.batches += 1
        enough = self.every_batches is not None and self.batches >= self.every_batches
        passed = time.monotonic() - self.saved_at
        late = self.every_seconds is not None and passed >= self.every_seconds
        if enough or late:
            served.save(self.path)
            self.batches, self.saved_at = 0, time.monotonic()


def _histogram(logits: Tensor) -> tuple[int, ...]:
    if not logits.shape[1]:
        return ()
    counts = torch.bincount(logits.argmax(dim=1), minlength=logits.shape[1])
    return tuple(counts.tolist())


def _unpickled(served_type: type[ServedModel], content: bytes) -> ServedModel:
    """Unpickling runs code of the file, unlike `realistic_tta.load`; trust where it comes from."""
    other = served_type.__new__(served_type)
    other.__dict__.update(torch.load(io.BytesIO(content), weights_only=False))
    return other
