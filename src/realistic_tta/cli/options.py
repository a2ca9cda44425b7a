"""Argument types and options that several commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
OUT = Path("rtta-bench")
WANTED = {int: "integers such as 4,2,1", float: "numbers such as 0.1,1", str: "names"}


def listed(kind: Callable[[str], T]) -> Callable[[str], list[T]]:
    """The argument type of a list: values separated by commas, each once.

    >>> listed(int)("4,2,4")
    [4, 2]
    """

    def parse(text: str) -> list[T]:
        try:
            return list(dict.fromkeys(kind(word.strip()) for word in text.split(",")))
        except ValueError:
            wanted = WANTED.get(kind, "values such as auto,1,0.1")  # type: ignore[call-overload]
            raise argparse.ArgumentTypeError(f'"{text}"; expected {wanted}') from None

    return parse


def positive(text: str) -> int:
    """The argument type of an integer of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}"; expected an integer of 1 or more')
    return int(text)


def fraction(text: str) -> float:
    """The argument type of a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f'"{text}"; expected a number from 0 to 1')
    return value


def momentum(text: str) -> float | None:
    """A fixed momentum; None for `auto`, the choice by Eq. 5."""
    return None if text == "auto" else float(text)


KINDS: dict[str, Callable[[str], Any]] = {
    "batch_sizes": int,
    "seeds": int,
    "deltas": float,
    "severities": int,
    "momentums": momentum,
}


def add_axes(command: Any, **helps: str) -> None:
    """Adds a list option for each axis: batch_sizes="..." becomes --batch-sizes LIST."""
    for name, text in helps.items():
        kind = listed(KINDS.get(name, str))
        command.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="LIST", help=text)


FILTERS = ("datasets", "models", "scenarios", "methods", "batch_sizes", "seeds", "severities")


def add_filters(command: argparse.ArgumentParser) -> None:
    """Adds the options that select records."""
    group = command.add_argument_group("records to use; by default all")
    add_axes(group, **dict.fromkeys(FILTERS, "only these"))
    group.add_argument("--status", choices=("done", "failed"))


def selected(arguments: argparse.Namespace) -> dict[str, Any]:
    """The filters as arguments of `Results.read`."""
    chosen = {each.removesuffix("s"): getattr(arguments, each) for each in FILTERS[:-1]}
    chosen["severity"] = arguments.severities
    chosen["status"] = arguments.status
    return {name: values for name, values in chosen.items() if values is not None}


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
