"""Scenarios: which parts a stream has, in which order, and when a method is reset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from realistic_tta.data.registry import CLEAN, CORRUPTIONS, SEVERITIES
from realistic_tta.errors import OptionError, unknown

from .orderings import (
    Indices,
    Loader,
    Part,
    choose,
    concatenated,
    correlate,
    one_severity,
    shuffled_together,
    up_and_down,
)
from .results import DEFAULT_SEVERITY

ORDERS = ("shuffled", "file")


@dataclass(frozen=True)
class Scenario:
    """A kind of stream.

    clean: the clean images are the only part.
    reset: when the runner calls `reset`; the method gets no other signal.
    """

    description: str
    gradual: bool = False
    mixed: bool = False
    correlated: bool = False
    clean: bool = False
    reset: Literal["never", "loader", "batch"] = "never"

    @property
    def takes_severity(self) -> bool:
        """Whether all corruptions are shown at one severity, which the plan chooses."""
        return not (self.gradual or self.clean)

    def parts(
        self, corruptions: Sequence[str], severity: int = DEFAULT_SEVERITY
    ) -> tuple[Part, ...]:
        """The parts of the stream, in the order of the tables."""
        if self.clean:
            return (Part(CLEAN, DEFAULT_SEVERITY),)
        return up_and_down(corruptions) if self.gradual else one_severity(corruptions, severity)


SCENARIOS: dict[str, Scenario] = {
    "continual": Scenario("the corruptions one after another"),
    "mixed": Scenario("the images of all corruptions shuffled into one stream", mixed=True),
    "gradual": Scenario("each corruption at severities 1 2 3 4 5 4 3 2 1", gradual=True),
    "reset_each_shift": Scenario("continual, reset before each corruption", reset="loader"),
    "episodic": Scenario("continual, reset before each batch", reset="batch"),
    "correlated": Scenario("continual, labels in runs inside each corruption", correlated=True),
    "mixed_correlated": Scenario("mixed, labels in runs", mixed=True, correlated=True),
    "gradual_correlated": Scenario("gradual, labels in runs", gradual=True, correlated=True),
    "clean": Scenario("the clean images", clean=True),
    "clean_correlated": Scenario("the clean images, labels in runs", clean=True, correlated=True),
}


@dataclass(frozen=True)
class StreamPlan:
    """Everything that determines the order of the images, except the dataset.

    order: "shuffled", one permutation for all corruptions (the reference framework), or "file"
        (the original code of tent and cotta).
    images: number of images in every part; None for all.
    delta: for correlated scenarios: None sorts by label, a number draws Dirichlet chunks.
    severity: for scenarios of one severity; the others require the default.
    """

    scenario: str = "continual"
    order: str = "shuffled"
    seed: int = 1  # the reference framework's
    images: int | None = None
    delta: float | None = None
    severity: int = DEFAULT_SEVERITY

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise OptionError(unknown("scenario", self.scenario, SCENARIOS))
        if self.order not in ORDERS:
            raise OptionError(unknown("order", self.order, ORDERS))
        _check_integer("seed", self.seed, 0)
        if self.images is not None:
            _check_integer("images", self.images, 1)
        if SCENARIOS[self.scenario].mixed and self.order == "file":
            raise OptionError(f'{self.scenario} shuffles all images; order "file" is not supported')
        if self.delta is not None:
            _check_delta(self.scenario, self.delta)
        if self.severity not in SEVERITIES:
            raise OptionError(f"severity is {self.severity}; expected 1, 2, 3, 4 or 5")
        if self.severity != DEFAULT_SEVERITY and not SCENARIOS[self.scenario].takes_severity:
            raise OptionError(f"{self.scenario} takes no severity")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the stream with the fifteen corruptions."""
        return SCENARIOS[self.scenario].parts(CORRUPTIONS, self.severity)

    def loaders(self, labels: Indices, parts: int) -> list[Loader]:
        """The images of the whole stream in order. labels: (image,), the same in every part."""
        if self.images is not None and self.images > len(labels):
            raise OptionError(
                f"images is {self.images}; expected at most {len(labels)}, the size of each part"
            )
        chosen = SCENARIOS[self.scenario]
        images = choose(len(labels), self.images, self.seed, shuffle=self.order == "shuffled")
        if chosen.mixed:
            loaders = shuffled_together(parts, images, self.seed)
        else:
            loaders = concatenated(parts, images)
        if chosen.correlated:
            return [correlate(loader, labels, self.delta, self.seed) for loader in loaders]
        return loaders


def _check_integer(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionError(f"{name} is {value!r}; expected an integer of {least} or more")


def _check_delta(scenario: str, delta: object) -> None:
    if not SCENARIOS[scenario].correlated:
        correlated = ", ".join(name for name, each in SCENARIOS.items() if each.correlated)
        raise OptionError(f"{scenario} takes no delta; expected one of: {correlated}")
    number = isinstance(delta, int | float) and not isinstance(delta, bool)
    if not number or not math.isfinite(delta) or delta <= 0:  # type: ignore[arg-type,operator]
        raise OptionError(f"delta is {delta!r}; expected a number above 0, such as 0.1")
