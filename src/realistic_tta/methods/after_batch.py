"""What is done after a batch, now and then. Used by methods/in_service.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from realistic_tta.errors import SettingError

from .checks import check_count, check_number
from .health import Health


class Watcher:
    """Calls back after every so many batches."""

    def __init__(self, callback: Callable[[Health], None], every: int) -> None:
        self.callback, self.every = callback, every
        self.batches = 0

    def __call__(self, adapted: Any) -> None:
        """Counts the batch, and calls back if it is time."""
        self.batches += 1
        if self.batches % self.every == 0:
            self.callback(adapted.health())

    def __str__(self) -> str:
        return f"the callback {self.callback!r}"


class Autosave:
    """Saves after so many batches, or once so many seconds have passed."""

    def __init__(self, path: Path, every_batches: int | None, every_seconds: float | None) -> None:
        if every_batches is None and every_seconds is None:
            raise SettingError("autosave needs every_batches=..., every_seconds=... or both")
        if every_batches is not None:
            check_count("every_batches", every_batches)
        if every_seconds is not None:
            check_number("every_seconds", every_seconds, low=0)
        self.path, self.every_batches, self.every_seconds = path, every_batches, every_seconds
        self.batches, self.saved_at = 0, time.monotonic()

    def __call__(self, adapted: Any) -> None:
        """Counts the batch, and saves if it is time; if that fails, the next batch tries again."""
        self.batches += 1
        if self._is_due():
            adapted.save(self.path)
            self.batches, self.saved_at = 0, time.monotonic()

    def _is_due(self) -> bool:
        if self.every_batches is not None and self.batches >= self.every_batches:
            return True
        passed = time.monotonic() - self.saved_at
        return self.every_seconds is not None and passed >= self.every_seconds

    def __str__(self) -> str:
        return f"autosave to {self.path}"
