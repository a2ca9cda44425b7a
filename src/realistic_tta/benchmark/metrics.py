"""What a run counts: right and wrong by part, the course of the error, time. Saved with it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

import torch
from torch import Tensor

from realistic_tta.benchmark.orderings import Indices, Part
from realistic_tta.benchmark.results import PartResult

POINTS = 200  # of the course, at most
# A TracePoint of realistic_tta/traces.py in plain numbers.
Point = tuple[int, float | None, list[float | None], list[float | None]]
TOGETHER = 64  # images that wait to be counted, at most, unless a batch has more
SAMPLES = 3, 30  # batches on which the plain network is timed, at least and at most


@dataclass
class Tally:
    """Plain numbers only, so that it can be written down and read back at any batch.

    What is seen waits a little and is counted together: at batch size 1 every operation on a tensor
    is felt. Figures are of what has been counted; `error` and `saved` count the rest first.

    course: images seen so far, error since the point before. window: images and wrong since then.
    timed: seconds of the method and of the plain network on the same batch.
    trace: what the layers did, a point for each of the course (traces.py); None if not asked for.
    """

    total: int  # batches of the whole stream
    images: list[int]  # (part,)
    wrong: list[int]  # (part,)
    counted: int = 0  # batches
    course: list[tuple[int, float]] = field(default_factory=list)
    window: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    method_seconds: float = 0.0
    timed: list[tuple[float, float]] = field(default_factory=list)
    trace: list[Point] | None = None
    replayed: int = 0  # batches that shared a forward with others
    resumed: int = 0

    def __post_init__(self) -> None:
        self._waiting: list[tuple[Indices, Tensor, Tensor]] = []

    @classmethod
    def start(cls, total: int, parts: int, *, traced: bool = False) -> Self:
        """Nothing counted yet."""
        return cls(total, [0] * parts, [0] * parts, trace=[] if traced else None)

    @classmethod
    def restore(cls, saved: dict[str, Any]) -> Self:
        """From what `saved` gave."""
        tally = cls(**saved)
        return dataclasses.replace(tally, resumed=tally.resumed + 1)

    def saved(self) -> dict[str, Any]:
        """As it is written down."""
        self.settle()
        return dataclasses.asdict(self)

    @property
    def batches(self) -> int:
        """Seen so far."""
        return self.counted + len(self._waiting)

    def see(self, parts: Indices, labels: Tensor, outputs: Tensor) -> None:
        """Takes in a batch. parts, labels: (image,). outputs: (image, class)."""
        self._waiting.append((parts, labels, outputs))
        if len(self._waiting) * len(parts) >= TOGETHER:
            self.settle()

    def settle(self) -> None:
        """Counts everything seen."""
        if not self._waiting:
            return
        by_batch, labels, outputs = zip(*self._waiting, strict=True)
        self._waiting = []
        wrong, begin = wrong_predictions(torch.cat(outputs), torch.cat(labels)), 0
        for parts in by_batch:
            self.count(parts.tolist(), wrong[begin : begin + len(parts)])
            begin += len(parts)

    def count(self, parts: Sequence[int], wrong: Sequence[bool]) -> None:
        """Adds a batch. parts: (image,), where each is from. wrong: (image,), whether."""
        for part, flag in zip(parts, wrong, strict=True):
            self.images[part] += 1
            self.wrong[part] += flag
        self.counted += 1
        self.window = self.window[0] + len(wrong), self.window[1] + sum(wrong)
        if self._ends_a_point(self.counted):
            images, missed = self.window
            seen = self.course[-1][0] + images if self.course else images
            self.course.append((seen, 100 * missed / images))
            self.window = 0, 0

    def is_at_point(self) -> bool:
        """Whether the course gets a point after the batch seen last."""
        return self._ends_a_point(self.batches)

    def _ends_a_point(self, batches: int) -> bool:
        return batches % -(-self.total // POINTS) == 0 or batches == self.total

    def is_timed(self, number: int) -> bool:
        """Whether the plain network runs this batch, too; never the first, which warms up."""
        low, high = SAMPLES
        samples = min(max(self.total // 50, low), high)
        return number > 0 and number % max(self.total // samples, 1) == self.total // samples // 2

    def error(self) -> float:
        """Mean over the parts seen, in percent."""
        self.settle()
        errors = [100 * w / n for w, n in zip(self.wrong, self.images, strict=True) if n]
        return sum(errors) / len(errors) if errors else 0.0

    def cost(self) -> float | None:
        """How many times the plain network's time the method takes; None if none was timed."""
        ratios = [method / plain for method, plain in self.timed]
        return median(ratios) if ratios else None

    def parts(self, names: tuple[Part, ...]) -> tuple[PartResult, ...]:
        """As the record keeps them."""
        counts = zip(names, self.images, self.wrong, strict=True)
        return tuple(PartResult(*part, images, wrong) for part, images, wrong in counts)


def wrong_predictions(outputs: Tensor, labels: Tensor) -> list[bool]:
    """(image,): whether the largest output is not the label; NaN is never right.

    >>> outputs = torch.tensor([[0.1, 0.9], [0.9, 0.1], [float("nan"), 0.0]])
    >>> wrong_predictions(outputs, torch.tensor([1, 1, 0]))
    [False, True, True]
    """
    largest, predicted = outputs.max(1)
    found = zip(largest.tolist(), predicted.tolist(), labels.tolist(), strict=True)
    return [guess != label or math.isnan(value) for value, guess, label in found]
