"""What a guard remembers, in a file beside what its method has learnt.

stored_state.py writes it, restore.py reads it: a guarded network goes on to the last bit, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from realistic_tta.errors import StateError

from .pairs import Pairs

if TYPE_CHECKING:
    from .guard import Guard

PREFIX = "guard."  # of its tensors' names
NUMBERS = ("trusted", "seen", "doubted", "fresh", "resting")


def guard_tensors(guard: Guard) -> dict[str, Tensor]:
    """What both networks said, what the method said last, and its last good state."""
    held = {f"good.{name}": tensor for name, tensor in (guard.good or {}).items()}
    if len(guard.pairs):
        held["adapted"], held["source"] = guard.pairs.joined()
    if guard.recent is not None:
        held["recent"] = guard.recent
    return {PREFIX + name: tensor for name, tensor in held.items()}


def guard_words(guard: Guard) -> str:
    """All else, as JSON; sizes: of the batches that the pairs came in."""
    numbers = {name: int(getattr(guard, name)) for name in NUMBERS}
    return json.dumps({**numbers, "sizes": [len(each) for each, _ in guard.pairs.batches]})


def continue_guard(
    guard: Guard, words: str, tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> None:
    """Puts a memory in place; own: the method's state, of which a good one has the form."""
    held = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    good = {name: held.pop(f"good.{name}") for name in own if f"good.{name}" in held}
    try:
        read = json.loads(words)
        numbers = {name: int(read[name]) for name in NUMBERS}
        sizes = read["sizes"]
        both = [held[name].split(sizes) for name in ("adapted", "source")] if sizes else []
        batches = list(zip(*both, strict=True))
    except (KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise StateError(f"what the guard remembers cannot be read: {error!r}") from error
    recent = held.get("recent")
    alike = recent is None or recent.ndim == 2
    alike &= all(a.ndim == 2 and a.shape == s.shape for a, s in batches)
    if alike and recent is not None:
        alike = all(a.shape[1] == recent.shape[1] for a, _ in batches)
    if not alike or any(good[name].shape != own[name].shape for name in good):
        raise StateError("what the guard remembers does not belong to this method and network")
    for name, number in numbers.items():
        setattr(guard, name, number)
    guard.trusted = bool(guard.trusted)
    guard.pairs = Pairs(batches)
    guard.recent = recent
    guard.good = good or None
