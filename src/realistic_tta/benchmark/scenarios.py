"""The settings by name: which parts a stream has, in which order, and when a method is reset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from realistic_tta.errors import SettingError, unknown

from .orderings import (
    Indices,
    Loader,
    Part,
    all_at_once,
    choose,
    correlate,
    one_after_another,
    one_severity,
    up_and_down,
)

ORDERS = ("shuffled", "file")


@dataclass(frozen=True)
class Setting:
    """reset: before what the method forgets everything; the network is never told otherwise."""

    what: str
    gradual: bool = False
    mixed: bool = False
    correlated: bool = False
    reset: Literal["never", "loader", "batch"] = "never"

    def parts(self, corruptions: Sequence[str]) -> tuple[Part, ...]:
        """The domains, in the order of the tables."""
        return up_and_down(corruptions) if self.gradual else one_severity(corruptions)


SETTINGS: dict[str, Setting] = {
    "continual": Setting("the corruptions one after another at severity 5"),
    "mixed": Setting("the images of all corruptions shuffled into one stream", mixed=True),
    "gradual": Setting("each corruption at severities 1 2 3 4 5 4 3 2 1", gradual=True),
    "reset_each_shift": Setting("continual, reset before each corruption", reset="loader"),
    "episodic": Setting("continual, reset before each batch", reset="batch"),
    "correlated": Setting("continual, labels in runs inside each corruption", correlated=True),
    "mixed_correlated": Setting("mixed, labels in runs", mixed=True, correlated=True),
    "gradual_correlated": Setting("gradual, labels in runs", gradual=True, correlated=True),
}


@dataclass(frozen=True)
class StreamPlan:
    """Everything that decides which image comes when, but the data.

    order: "shuffled", one permutation for all corruptions (the reference framework), or "file"
        (tent's and cotta's own programs).
    images: how many of every part, the same in each; None for all.
    delta: of the correlated settings: None sorts by label, a number draws Dirichlet chunks.
    """

    setting: str = "continual"
    order: str = "shuffled"
    seed: int = 1  # the reference framework's
    images: int | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.setting not in SETTINGS:
            raise SettingError(unknown("setting", self.setting, SETTINGS))
        if self.order not in ORDERS:
            raise SettingError(unknown("order", self.order, ORDERS))
        _check_whole("seed", self.seed, 0)
        if self.images is not None:
            _check_whole("images", self.images, 1)
        chosen = SETTINGS[self.setting]
        if chosen.mixed and self.order == "file":
            raise SettingError(f'{self.setting} shuffles all images; order "file" cannot be')
        if self.delta is not None:
            _check_delta(self.setting, self.delta)

    def loaders(self, labels: Indices, parts: int) -> list[Loader]:
        """The images of the whole stream in order. labels: (image,), the same in every part."""
        if self.images is not None and self.images > len(labels):
            raise SettingError(
                f"images is {self.images}; expected at most {len(labels)}, as each part has"
            )
        chosen = SETTINGS[self.setting]
        images = choose(len(labels), self.images, self.seed, shuffle=self.order == "shuffled")
        if chosen.mixed:
            loaders = all_at_once(parts, images, self.seed)
        else:
            loaders = one_after_another(parts, images)
        if chosen.correlated:
            return [correlate(loader, labels, self.delta, self.seed) for loader in loaders]
        return loaders


def _check_whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SettingError(f"{name} is {value!r}; expected a whole number of {least} or more")


def _check_delta(setting: str, delta: object) -> None:
    if not SETTINGS[setting].correlated:
        correlated = ", ".join(name for name, each in SETTINGS.items() if each.correlated)
        raise SettingError(f"{setting} takes no delta; these do: {correlated}")
    number = isinstance(delta, int | float) and not isinstance(delta, bool)
    if not number or not math.isfinite(delta) or delta <= 0:  # type: ignore[arg-type,operator]
        raise SettingError(f"delta is {delta!r}; expected a number above 0, such as 0.1")
