"""One call at a time: the lock of an adapted network. Used by methods/in_service.py.

A lock cannot be copied, and one that another thread holds stays held in a forked child for ever.
So a copy gets a lock of its own, and a fork waits until no call is running: the child finds every
network between two batches, its lock free.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Self


class Turn:
    """A context that one thread at a time is in; a thread that is may enter again."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _TURNS.add(self)

    def __enter__(self) -> Self:
        self.lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        """Copied and pickled as a new one."""
        return Turn, ()


_TURNS: weakref.WeakSet[Turn] = weakref.WeakSet()
_FORKING = threading.RLock()  # one fork at a time: two would wait for each other's turns
_HELD: list[Turn] = []  # while a fork is under way


def _hold_all() -> None:
    _FORKING.acquire()
    for turn in list(_TURNS):
        turn.lock.acquire()
        _HELD.append(turn)


def _let_go() -> None:
    while _HELD:
        _HELD.pop().lock.release()
    _FORKING.release()


if hasattr(os, "register_at_fork"):  # where there is no fork there is nothing to wait for
    os.register_at_fork(before=_hold_all, after_in_parent=_let_go, after_in_child=_let_go)
