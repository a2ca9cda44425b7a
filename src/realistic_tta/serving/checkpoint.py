"""The file of an adapted model: its state, its method and options, and which model it is for.

The format is that of storage.py. The weights of the model are not stored, only their hash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from realistic_tta.core.adapted_model import AdaptedModel
from realistic_tta.core.settings import to_json
from realistic_tta.core.source_tensors import other_buffers, source_tensors
from realistic_tta.errors import StateError
from realistic_tta.storage import read_tensors, tensors_hash, write_tensors

_OUTERMOST = ("serving", "compile")  # levels that are not options of the file


@dataclass(frozen=True)
class Checkpoint:
    """The content of a file.

    settings: JSON of the method's hyperparameters. wrappers: names and JSON, from the inside out.
    """

    path: Path
    method: str
    settings: str
    wrappers: dict[str, str]
    tensors: dict[str, Tensor]


def save_state(adapted: AdaptedModel, path: Path) -> None:
    """Writes the state of all levels to a file, atomically."""
    method = adapted._innermost
    tensors: dict[str, Tensor] = {}
    for level in adapted._levels():
        tensors |= {f"{level.name}.{name}": value for name, value in level._state().items()}
    tensors |= {f"model.{key}": value for key, value in other_buffers(method._model).items()}
    wrappers = {
        level.name: to_json(level._settings)
        for level in reversed(list(adapted._levels()))
        if level is not method and level.name not in _OUTERMOST
    }
    metadata = {
        "method": method.name,
        "settings": to_json(method._settings),
        "wrappers": json.dumps(wrappers),
        **_describe_model(method._model),
    }
    write_tensors(path, tensors, metadata)


def read_checkpoint(path: Path, model: nn.Module) -> Checkpoint:
    """Reads a file; raises a StateError if it is damaged or belongs to another model."""
    tensors, metadata = read_tensors(path)
    try:
        stored = {key: metadata[key] for key in ("model_layout", "model_hash")}
        layout = json.loads(stored["model_layout"])
        wrappers = json.loads(metadata["wrappers"])
        method, settings = metadata["method"], metadata["settings"]
        layout, wrappers = dict(layout), {name: str(text) for name, text in wrappers.items()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StateError(f"{path} lacks what every state holds ({error!r})") from error
    given = _describe_model(model)
    if problem := _difference(layout, json.loads(given["model_layout"])):
        raise StateError(f"{path} belongs to another model: of the one given, {problem}")
    if stored["model_hash"] != given["model_hash"]:
        raise StateError(
            f"{path} belongs to another model: the one given has the same layers with other weights"
        )
    return Checkpoint(path, method, settings, wrappers, tensors)


def restore(adapted: AdaptedModel, checkpoint: Checkpoint) -> None:
    """Loads the state of all levels, or raises a StateError and changes nothing."""
    state: dict[str, Any] = dict(adapted.state_dict())
    expected = set()
    for depth, level in enumerate(adapted._levels()):
        for name, value in level._state().items():
            key = f"{level.name}.{name}"
            expected.add(key)
            own = None if name in level._resizable() else value
            state["_model." * depth + name] = _checked(checkpoint, key, own)
    prefix = "_model." * (depth + 1)
    for key, value in other_buffers(adapted._innermost._model).items():
        expected.add(f"model.{key}")
        state[prefix + key] = _checked(checkpoint, f"model.{key}", value)
    if surplus := sorted(checkpoint.tensors.keys() - expected):
        raise StateError(f'{checkpoint.path}: "{surplus[0]}" is unknown. Nothing was loaded')
    adapted.load_state_dict(state)


def _checked(checkpoint: Checkpoint, key: str, own: Any) -> Tensor:
    """A tensor of the file; torch would convert another dtype silently, and lose digits."""
    value = checkpoint.tensors.get(key)
    if value is None:
        raise StateError(f'{checkpoint.path}: "{key}" is missing. Nothing was loaded')
    if isinstance(own, Tensor) and value.dtype != own.dtype:
        raise StateError(f'{checkpoint.path}: "{key}" is {value.dtype}, expected {own.dtype}')
    return value


def _describe_model(model: nn.Module) -> dict[str, str]:
    tensors = source_tensors(model)
    layout = {
        name: f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}"
        for name, each in tensors.items()
    }
    return {"model_layout": json.dumps(layout), "model_hash": tensors_hash(tensors)}


def _difference(expected: dict[str, Any], given: dict[str, Any]) -> str | None:
    """How another model's layout differs, in words; None if it is the same."""
    for name, wanted in expected.items():
        if name not in given:
            return f'"{name}" is missing'
        if given[name] != wanted:
            return f'"{name}" is {given[name]}, expected {wanted}'
    for name in given:
        if name not in expected:
            return f'"{name}" is not expected'
    return None
