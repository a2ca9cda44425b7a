"""What of an adapted network goes into its file, and how it comes back.

Stored are the state_dict without what `fingerprint` covers (the network's own weights: no method
changes them), what a guard remembers, and in words the method, its settings, the counts and the
fingerprint.
methods/state_file.py has the file itself, methods/restore.py makes a network from it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from realistic_tta.errors import StateError

from .fingerprint import fingerprint, fixed_names
from .guard_state import guard_tensors, guard_words
from .settings_json import to_json
from .state_file import Stored


def stored_state(adapted: Any) -> Stored:
    """A copy of everything learnt."""
    if adapted.known_fingerprint is None:
        adapted.known_fingerprint = fingerprint(adapted.network)
    words = {
        "package_version": version("realistic-tta"),
        "method": adapted.name,
        "settings": to_json(adapted.settings),
        "counts": json.dumps(asdict(adapted.counts)),
        "network": json.dumps(asdict(adapted.known_fingerprint)),
    }
    tensors = own_state(adapted)
    if adapted.guard is not None:
        words["guard"] = guard_words(adapted.guard)
        tensors |= guard_tensors(adapted.guard)
    return Stored({name: _copy(name, value) for name, value in tensors.items()}, words)


def own_state(adapted: Any) -> dict[str, Any]:
    """The part of the state_dict that is stored."""
    fixed = {f"network.{name}" for name in fixed_names(adapted.network)}
    return {name: value for name, value in adapted.state_dict().items() if name not in fixed}


def _copy(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise StateError(
            f'"{name}" of the network\'s state is a {type(value).__name__}, no tensor, and cannot '
            "be saved without pickle; use state_dict() and a file of your own"
        )
    return value.detach().to("cpu", memory_format=torch.contiguous_format, copy=True)
