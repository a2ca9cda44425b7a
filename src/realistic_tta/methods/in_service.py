"""What an adapted network needs in service: one call at a time, files, figures.

methods/base.py builds on it. Of these nothing is in `forward`: a network that torch.compile takes
in whole runs without; one compiled in place, `adapted.compile()`, keeps all of it.
"""

from __future__ import annotations

import copy
import functools
import io
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from .after_batch import Autosave, Watcher
from .batch import count_images
from .checks import check_count
from .fingerprint import Fingerprint
from .guard import Guard
from .health import Counts, Health, RecentPredictions
from .report import Report
from .state_file import write_state
from .stored_state import stored_state
from .turn import Turn

_LOG = logging.getLogger("realistic_tta")


class InService(nn.Module):
    """Calls take turns; after each, whoever asked for it is told."""

    name: ClassVar[str]
    settings: Any
    network: nn.Module
    report: Callable[[], Report]
    guard: Guard | None = None
    of_one_pass: Tensor | None = None  # logits, where the outputs are means over several passes

    def __init__(self) -> None:
        super().__init__()
        self.turn = Turn()
        self.counts = Counts()
        self.recent = RecentPredictions()
        self.kept: Tensor | None = None  # whether a sample was adapted to; None: all
        self.after_batch: list[Callable[[Any], None]] = []
        self.known_fingerprint: Fingerprint | None = None  # made when first needed

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Whatever a method writes of these waits for its turn."""
        super().__init_subclass__(**kwargs)
        for name in ("freeze", "report", "load_state_dict", "_apply"):
            if name in cls.__dict__:
                setattr(cls, name, _in_turn(cls.__dict__[name]))
        if "reset" in cls.__dict__:
            cls.reset = _counted(cls.__dict__["reset"])  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adapts to the batch, then predicts it; calls from several threads take turns."""
        if torch.compiler.is_compiling():  # a lock has no place in a graph
            return super().__call__(*args, **kwargs)
        with self.turn:
            self.kept = None
            outputs = super().__call__(*args, **kwargs)
            self.counts.batches += 1
            self.counts.images += count_images(args, kwargs)
            self.recent.take(outputs, self.kept)
            for tell in tuple(self.after_batch):
                self._tell(tell)
            return outputs

    def save(self, path: str | Path) -> None:
        """Writes everything learnt into one file, whole or not at all; see realistic_tta.load."""
        with self.turn:
            write_state(Path(path), stored_state(self))

    def autosave(
        self,
        path: str | Path,
        *,
        every_batches: int | None = None,
        every_seconds: float | None = None,
    ) -> Callable[[], None]:
        """Saves now, and again after so many batches or, at the end of a batch, seconds.

        Returns a function that ends it. A copy of this network does not save itself.
        """
        autosave = Autosave(Path(path), every_batches, every_seconds)
        self.save(path)  # a path that cannot be written is told at once
        return self._add(autosave)

    def watch(self, callback: Callable[[Health], None], every: int = 1) -> Callable[[], None]:
        """Calls back with `health()` after every so many batches; returns a function to end it."""
        check_count("every", every)
        return self._add(Watcher(callback, every))

    def health(self) -> Health:
        """Counts, recent predictions and layers, as they are now."""
        with self.turn, torch.no_grad():
            return Health(
                self.name,
                **asdict(self.counts),
                recent=len(self.recent),
                entropy=self.recent.entropy(),
                histogram=self.recent.histogram(),
                layers=self.report().layers,
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy between two batches, with tensors and a turn of its own, and nobody to tell."""
        with self.turn:
            other = type(self).__new__(type(self))
            memo[id(self)] = other
            other.__dict__.update(copy.deepcopy({**self.__dict__, "after_batch": []}, memo))
            return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as bytes: a process that is spawned would otherwise share the tensors' memory."""
        file = io.BytesIO()
        with self.turn:
            torch.save({**self.__dict__, "after_batch": []}, file)
        return _unpickled, (type(self), file.getvalue())

    def _add(self, tell: Callable[[Any], None]) -> Callable[[], None]:
        self.after_batch.append(tell)
        return lambda: self.after_batch.remove(tell) if tell in self.after_batch else None

    def _tell(self, tell: Callable[[Any], None]) -> None:
        """The batch is predicted: what goes wrong now must not cost its prediction."""
        try:
            tell(self)
        except Exception:  # noqa: BLE001 - a callback may raise anything; it is logged whole
            _LOG.exception("%s after a batch failed; the batch itself is predicted", tell)


def _unpickled(kind: type[InService], content: bytes) -> InService:
    """What was pickled; whoever unpickles trusts where it comes from, which `load` need not."""
    other = kind.__new__(kind)
    other.__dict__.update(torch.load(io.BytesIO(content), weights_only=False))
    return other


def _in_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method, one thread at a time."""

    @functools.wraps(function)
    def waiting(self: InService, *args: Any, **kwargs: Any) -> Any:
        with self.turn:
            return function(self, *args, **kwargs)

    return waiting


def _counted(reset: Callable[..., None]) -> Callable[..., None]:
    """The reset in its turn; counted once, however many classes have a part in it."""

    @functools.wraps(reset)
    def counting(self: InService) -> None:
        with self.turn:
            before = self.counts.resets
            reset(self)
            self.counts.resets = before + 1
            self.recent.forget()
            if self.guard is not None:
                self.guard.forget()

    return counting
