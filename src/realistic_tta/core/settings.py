"""Hyperparameters as frozen dataclasses, checked against their declared types.

Every method and wrapper declares its hyperparameters as a subclass of `Settings`. One validator
checks all of them, so an annotation is the whole check:

    momentum: Probability | Literal["auto"] = "auto"
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from realistic_tta.errors import OptionError, unknown


@dataclass(frozen=True)
class Bounds:
    """The smallest and the largest value of a number, both included."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if math.isfinite(self.high):
            return f"from {self.low:g} to {self.high:g}"
        return f"of {self.low:g} or more"


Count = Annotated[int, Bounds(1)]
NonNegative = Annotated[float, Bounds(0)]
Probability = Annotated[float, Bounds(0, 1)]
Momentum = Annotated[float, Bounds(1e-6, 1)]  # weight of the current batch, as in torch
Seed = Annotated[int, Bounds(0, 2**63 - 1)]


@dataclass(frozen=True)
class Settings:
    """Hyperparameters; a value that does not fit its annotation raises an OptionError."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for field in dataclasses.fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            if not _fits(value, hint):
                raise OptionError(f"{field.name} is {value!r}; expected {_describe(hint)}")

    @classmethod
    def names(cls) -> list[str]:
        """The names of the hyperparameters."""
        return [field.name for field in dataclasses.fields(cls)]


def _fits(value: Any, hint: Any) -> bool:  # noqa: PLR0911 - one per form of annotation
    """Whether a value has the annotated type; a bool is never a number."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = arguments[1]
        return _fits(value, arguments[0]) and bounds.low <= value <= bounds.high
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is Literal:
        return any(
            value is each or (value == each and type(value) is type(each)) for each in arguments
        )
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(_fits(each, arguments[0]) for each in value)
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    if hint is int:
        return type(value) is int
    return isinstance(value, hint)


def _describe(hint: Any) -> str:  # noqa: PLR0911 - one per form of annotation
    """An annotation in words.

    >>> _describe(Probability | Literal["auto"]), _describe(Count | None)
    ('a number from 0 to 1 or "auto"', 'a whole number of 1 or more or None')
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return f"{_describe(arguments[0])} {arguments[1]}"
    if origin in (Union, types.UnionType):
        return " or ".join(map(_describe, arguments))
    if origin is Literal:
        return " or ".join(
            f'"{each}"' if isinstance(each, str) else repr(each) for each in arguments
        )
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"a tuple, each entry {_describe(arguments[0])}"
        return f"a tuple of {len(arguments)}, each {_describe(arguments[0])}"
    if dataclasses.is_dataclass(hint):
        return f"{getattr(hint, '__name__', hint)}(...)"
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "a string"}
    return "None" if hint is type(None) else words.get(hint, str(hint))


def to_json(settings: Settings) -> str:
    """Settings as JSON; settings inside them, such as an optimizer, carry their type."""
    return json.dumps(_plain(settings))


def from_json(expected: Any, text: str) -> Any:
    """The settings in a JSON text, checked as if they were given by hand; executes nothing."""
    return _build(expected, json.loads(text))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {
            each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)
        }
        return {"type": type(value).__name__, **fields}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _build(expected: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_build(None, each) for each in value)
    if not isinstance(value, dict):
        return value
    allowed = {
        each.__name__: each for each in (expected, *get_args(expected)) if _is_settings(each)
    }
    fields = dict(value)
    name = str(fields.pop("type", None))
    if name not in allowed:
        raise OptionError(unknown("settings type", name, allowed))
    hints = get_type_hints(allowed[name])
    for field in fields:
        if field not in hints:
            raise OptionError(unknown("option", field, allowed[name].names()))
    return allowed[name](**{field: _build(hints[field], each) for field, each in fields.items()})


def _is_settings(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Settings)
