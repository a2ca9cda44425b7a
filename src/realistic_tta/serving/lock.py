"""One call at a time: the lock of an adapted model. Used by served_model.py.

A lock cannot be copied, and one that another thread holds stays held in a forked child forever.
So a copy gets a new lock, and a fork waits until no call is running.
"""

from __future__ import annotations

import os
import threading
import weakref


class CallLock:
    """Holds `lock`, a context that one thread at a time can enter, repeatedly.

    Enter `lock` itself: it is written in C, so no signal handler can run, and raise, between
    acquiring it and the first statement inside.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _LOCKS.add(self)

    def __reduce__(self) -> tuple[type[CallLock], tuple[()]]:
        """Copied and pickled as a new lock."""
        return CallLock, ()


_LOCKS: weakref.WeakSet[CallLock] = weakref.WeakSet()
_FORKING = threading.RLock()  # one fork at a time: two would wait for each other's locks
_HELD: list[CallLock] = []  # during a fork


def _acquire_all() -> None:
    _FORKING.acquire()
    for each in list(_LOCKS):
        each.lock.acquire()
        _HELD.append(each)


def _release_all() -> None:
    while _HELD:
        _HELD.pop().lock.release()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all
    )
