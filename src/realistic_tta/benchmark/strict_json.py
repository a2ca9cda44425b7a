"""Parses untrusted JSON; everything wrong with it is a ValueError.

Python's parser accepts NaN, overflowing numbers and lone surrogates; this one refuses them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

LARGEST = 1e15  # sums of such numbers stay finite


def parse(text: str) -> dict[str, Any]:
    """The JSON object in the text.

    >>> parse('{"error": 1e999}')
    Traceback (most recent call last):
    ValueError: Out of range float values are not JSON compliant
    """
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()  # can be written back
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__}; expected an object")  # noqa: TRY004 - as above
    return found


def is_integer(value: object) -> bool:
    """Whether the value is an integer of plausible size."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST


def is_number(value: object) -> bool:
    """Whether the value is a number of plausible size."""
    return is_integer(value) or (isinstance(value, float) and abs(value) <= LARGEST)


KINDS: dict[str, Callable[[object], bool]] = {  # by the annotation of a field
    "str": lambda value: isinstance(value, str),
    "int": is_integer,
    "dict[str, Any]": lambda value: isinstance(value, dict),
    "Literal['done', 'failed']": lambda value: value in ("done", "failed"),
    "str | None": lambda value: value is None or isinstance(value, str),
    "int | None": lambda value: value is None or is_integer(value),
    "float | None": lambda value: value is None or is_number(value),
}


def check_fields(found: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
    """Raises unless every field that is present matches its annotation."""
    for name, annotation in annotations.items():
        if annotation in KINDS and name in found and not KINDS[annotation](found[name]):
            raise ValueError(f"{name} is {str(found[name])[:40]!r}; expected {annotation}")
