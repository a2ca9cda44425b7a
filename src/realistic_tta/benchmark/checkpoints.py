"""The state of a run that has not come to its end: what runner.py goes on from after a kill.

A file is a SHA-256 and what it is the sum of. Whatever is damaged, or is no such state, is begun
anew: the figures are the same, only later.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from realistic_tta.benchmark.results import write_whole
from realistic_tta.errors import StateError
from realistic_tta.methods.base import AdaptedModel
from realistic_tta.methods.guard_state import continue_guard, guard_tensors, guard_words
from realistic_tta.methods.stored_state import own_state
from realistic_tta.storage import leftovers

from .environment import versions
from .metrics import Tally

SUM = 32  # bytes


def state_file(key: str, folder: Path) -> Path:
    """Where the state of an unfinished run is kept."""
    return folder / "unfinished" / f"{key}.pt"


def save(path: Path, adapted: AdaptedModel, tally: Tally) -> None:
    """Writes down everything the rest of the run depends on, whole or not at all."""
    content = io.BytesIO()
    state: dict[str, Any] = {"method": adapted.state_dict(), "tally": tally.saved()}
    if adapted.guard is not None:
        state["guard"] = guard_words(adapted.guard), guard_tensors(adapted.guard)
    torch.save(state | {"versions": versions()}, content)
    write_whole(path, _sum(content.getvalue()) + content.getvalue())


def restore(path: Path, adapted: AdaptedModel, *, traced: bool = False) -> Tally | None:
    """Puts the method where it was and returns the counts; None if there is nothing to go on from.

    One run is of one program: what another version has begun is begun anew. So is, if a trace is
    wanted, a run that was begun without.
    """
    found = _read(path)
    if found.get("versions") != versions():
        return None
    try:
        if traced and found["tally"]["trace"] is None:
            return None
        tally = Tally.restore(found["tally"])
        adapted.load_state_dict(found["method"])
        if adapted.guard is not None:
            words, tensors = found["guard"]
            continue_guard(adapted.guard, words, tensors, own_state(adapted))
    except (StateError, TypeError, KeyError, ValueError):  # whoever wrote this, it was not `save`
        adapted.reset()  # what had been put in place by then
        return None
    return tally


def forget(path: Path) -> None:
    """Removes the state of a run that is done, and what kills left of it half written."""
    for each in (path, *leftovers(path)):
        each.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """What was saved; empty if that is missing or damaged. Nothing in it is run."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    told, content = content[:SUM], content[SUM:]
    if told != _sum(content):
        return {}
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001 - a broken file may break the reader in any way
        return {}
    return found if isinstance(found, dict) else {}


def _sum(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
