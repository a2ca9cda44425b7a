"""Reads JSON that may come from others; whatever is wrong with it is a ValueError.

Python's reader takes NaN, endless numbers and halves of characters, which nothing after it expects.
Used by results.py and traces.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

LARGEST = 1e15  # no figure of ours comes near; sums of such stay finite


def parse(text: str) -> dict[str, Any]:
    """The object that the text is.

    >>> parse('{"error": 1e999}')
    Traceback (most recent call last):
    ValueError: Out of range float values are not JSON compliant
    """
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()  # it can be written, too
    except RecursionError as error:
        raise ValueError("lists in lists without end") from error
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__}; expected an object")  # noqa: TRY004 - as above
    return found


def is_whole(value: object) -> bool:
    """Whether it is a whole number of a size that ours have."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST


def is_number(value: object) -> bool:
    """Whether it is a number of a size that ours have."""
    return is_whole(value) or (isinstance(value, float) and abs(value) <= LARGEST)


KINDS: dict[str, Callable[[object], bool]] = {  # by the annotation of a field
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "int": is_whole,
    "dict[str, Any]": lambda value: isinstance(value, dict),
    "Literal['done', 'failed']": lambda value: value in ("done", "failed"),
    "str | None": lambda value: value is None or isinstance(value, str),
    "int | None": lambda value: value is None or is_whole(value),
    "float | None": lambda value: value is None or is_number(value),
}


def check_fields(found: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
    """Raises unless every field that is there is of the kind its annotation says."""
    for name, annotation in annotations.items():
        if annotation in KINDS and name in found and not KINDS[annotation](found[name]):
            raise ValueError(f"{name} is {str(found[name])[:40]!r}; expected {annotation}")
