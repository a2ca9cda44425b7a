"""Settings of a method as JSON, and back: for the file that methods/state_file.py writes.

A settings object is made again by its own class, so that every value is checked as if it were
given by hand; nothing in the text is ever executed.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args, get_type_hints

from realistic_tta.errors import SettingError, unknown


def to_json(settings: Any) -> str:
    """The settings as text; a settings object inside them, as an optimiser, carries its type.

    >>> from realistic_tta.methods.optimizers import SGD
    >>> to_json(SGD(lr=0.1))
    '{"type": "SGD", "lr": 0.1, "momentum": 0.0, "nesterov": false, "weight_decay": 0.0}'
    """
    return json.dumps(_plain(settings))


def from_json(expected: Any, text: str) -> Any:
    """An object of the expected settings class, or of one that its fields are declared to hold."""
    return _build(expected, json.loads(text))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {field.name: _plain(getattr(value, field.name)) for field in _fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


def _build(expected: Any, value: Any) -> Any:
    """What `_plain` was given, from what it made; sequences in settings are tuples."""
    if isinstance(value, list):
        return tuple(_build(None, each) for each in value)
    if not isinstance(value, dict):
        return value
    known = {each.__name__: each for each in (expected, *get_args(expected)) if _is_settings(each)}
    given = dict(value)
    name = str(given.pop("type", None))
    if name not in known:
        raise SettingError(unknown("settings", name, known))
    hints = get_type_hints(known[name])
    for field in given:
        if field not in {each.name for each in _fields(known[name])}:
            raise SettingError(unknown("setting", field, hints))
    return known[name](**{field: _build(hints[field], each) for field, each in given.items()})


def _is_settings(expected: Any) -> bool:
    return isinstance(expected, type) and dataclasses.is_dataclass(expected)


def _fields(settings: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(settings)
