"""Metrics of a run: errors per part, the error curve, and time. Saved in its checkpoint."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

import torch
from torch import Tensor

from .orderings import Indices, Part
from .results import FIRST_IMAGES, PartResult

POINTS = 200  # of the error curve, at most
Point = tuple[int, list[float | None], list[float | None]]  # a TracePoint as plain values
TOGETHER = 64  # images that are counted together, unless a batch is larger
TIMED = 3, 30  # batches on which the source model is timed too: at least, at most


@dataclass
class Metrics:
    """Counts of a run, as plain numbers.

    Batches are queued and counted together, because tensor operations on single images are slow.
    `error` and `saved` count the queue first.

    error_curve: images seen so far, and the error since the previous point.
    window: images and errors since the last point of the curve.
    timed: seconds of the method and of the source model on the same batch.
    trace: one point per point of the error curve (traces.py); None if not requested.
    """

    total: int  # batches in the stream
    images: list[int]  # (part,)
    wrong: list[int]  # (part,)
    wrong_in_first: list[list[int]]  # (part, FIRST_IMAGES)
    counted: int = 0  # batches
    error_curve: list[tuple[int, float]] = field(default_factory=list)
    window: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    method_seconds: float = 0.0
    timed: list[tuple[float, float]] = field(default_factory=list)
    trace: list[Point] | None = None
    resumed: int = 0

    def __post_init__(self) -> None:
        self._queue: list[tuple[Indices, Tensor, Tensor]] = []

    @classmethod
    def start(cls, total: int, parts: int, *, traced: bool = False) -> Self:
        """The metrics of a run that has not begun."""
        first = [[0] * len(FIRST_IMAGES) for _ in range(parts)]
        trace: list[Point] | None = [] if traced else None
        return cls(total, [0] * parts, [0] * parts, first, trace=trace)

    @classmethod
    def restore(cls, saved: dict[str, Any]) -> Self:
        """The metrics that `saved` returned; JSON makes lists of its tuples."""
        metrics = cls(**saved)
        return dataclasses.replace(
            metrics,
            error_curve=[(seen, error) for seen, error in metrics.error_curve],
            window=(metrics.window[0], metrics.window[1]),
            timed=[(method, source) for method, source in metrics.timed],
            trace=None if metrics.trace is None else [(i, w, d) for i, w, d in metrics.trace],
            resumed=metrics.resumed + 1,
        )

    def saved(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        self.flush()
        return dataclasses.asdict(self)

    @property
    def batches(self) -> int:
        """Number of batches seen so far."""
        return self.counted + len(self._queue)

    def add(self, parts: Indices, labels: Tensor, outputs: Tensor) -> None:
        """Queues one batch. parts, labels: (image,). outputs: (image, class)."""
        self._queue.append((parts, labels, outputs))
        if len(self._queue) * len(parts) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Counts every queued batch."""
        if not self._queue:
            return
        by_batch, labels, outputs = zip(*self._queue, strict=True)
        self._queue = []
        wrong, begin = wrong_predictions(torch.cat(outputs), torch.cat(labels)), 0
        for parts in by_batch:
            self.count(parts.tolist(), wrong[begin : begin + len(parts)])
            begin += len(parts)

    def count(self, parts: Sequence[int], wrong: Sequence[bool]) -> None:
        """Counts one batch. parts: (image,), its part. wrong: (image,)."""
        for part, flag in zip(parts, wrong, strict=True):
            self.images[part] += 1
            self.wrong[part] += flag
            for place, limit in enumerate(FIRST_IMAGES):
                self.wrong_in_first[part][place] += flag and self.images[part] <= limit
        self.counted += 1
        self.window = self.window[0] + len(wrong), self.window[1] + sum(wrong)
        if self._ends_point(self.counted):
            images, missed = self.window
            seen = self.error_curve[-1][0] + images if self.error_curve else images
            self.error_curve.append((seen, 100 * missed / images))
            self.window = 0, 0

    def is_at_point(self) -> bool:
        """Whether the last batch seen ends a point of the error curve."""
        return self._ends_point(self.batches)

    def _ends_point(self, batches: int) -> bool:
        return batches % -(-self.total // POINTS) == 0 or batches == self.total

    def is_timed(self, number: int) -> bool:
        """Whether the source model is timed on this batch; never on the first, which warms up."""
        low, high = TIMED
        samples = min(max(self.total // 50, low), high)
        return number > 0 and number % max(self.total // samples, 1) == self.total // samples // 2

    def error(self) -> float:
        """Mean error over the parts seen, in percent."""
        self.flush()
        errors = [100 * w / n for w, n in zip(self.wrong, self.images, strict=True) if n]
        return sum(errors) / len(errors) if errors else 0.0

    def cost(self) -> float | None:
        """Median time relative to the source model; None if it was not timed."""
        ratios = [method / plain for method, plain in self.timed]
        return median(ratios) if ratios else None

    def parts(self, names: tuple[Part, ...]) -> tuple[PartResult, ...]:
        """The counts per part, as a record keeps them."""
        counts = zip(names, self.images, self.wrong, self.wrong_in_first, strict=True)
        return tuple(
            PartResult(*part, images, wrong, tuple(first)) for part, images, wrong, first in counts
        )


def wrong_predictions(outputs: Tensor, labels: Tensor) -> list[bool]:
    """(image,): whether the largest output is not the label's; NaN is always wrong.

    >>> outputs = torch.tensor([[0.1, 0.9], [0.9, 0.1], [float("nan"), 0.0]])
    >>> wrong_predictions(outputs, torch.tensor([1, 1, 0]))
    [False, True, True]
    """
    largest, predicted = outputs.max(1)
    found = zip(largest.tolist(), predicted.tolist(), labels.tolist(), strict=True)
    return [guess != label or math.isnan(value) for value, guess, label in found]
