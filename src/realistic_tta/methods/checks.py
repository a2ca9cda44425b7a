"""Checks of settings that several methods share."""

from __future__ import annotations

import math
from typing import Any

from realistic_tta.errors import SettingError


def check_number(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """Raises unless the setting is a finite number from low to high."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        span = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of {low:g} or more"
        raise SettingError(f"{name} is {value!r}; expected a number {span}")


def check_count(name: str, value: Any, low: int = 1) -> None:
    """Raises unless the setting is a whole number of 1, or whatever is lowest, or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise SettingError(f"{name} is {value!r}; expected a whole number of {low} or more")


def check_seed(value: Any) -> None:
    """Raises unless the setting can seed a generator."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise SettingError(f"seed is {value!r}; expected a whole number from 0 to 2 ** 63 - 1")


def check_switch(name: str, value: Any) -> None:
    """Raises unless the setting is True or False."""
    if not isinstance(value, bool):
        raise SettingError(f"{name} is {value!r}; expected True or False")
