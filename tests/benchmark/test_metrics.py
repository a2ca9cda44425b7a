"""What is seen batch by batch is counted together, and nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from realistic_tta.benchmark.metrics import TOGETHER, Metrics
from realistic_tta.benchmark.orderings import Part
from realistic_tta.benchmark.results import FIRST_IMAGES

PARTS, CLASSES = 3, 4


def batches(count: int, size: int) -> list[tuple[np.ndarray, Tensor, Tensor]]:
    """Parts, labels and outputs, some of them NaN; the last batch is smaller."""
    random = np.random.default_rng(count)
    sizes = [size] * (count - 1) + [max(size // 2, 1)]
    outputs = [random.normal(size=(n, CLASSES)) for n in sizes]
    for few in outputs[::7]:
        few[0, random.integers(CLASSES)] = np.nan
    return [
        (
            random.integers(0, PARTS, len(few)),
            torch.from_numpy(random.integers(0, CLASSES, len(few))),
            torch.from_numpy(few),
        )
        for few in outputs
    ]


def counted_at_once(seen: list[tuple[np.ndarray, Tensor, Tensor]], total: int) -> Metrics:
    """Each batch by itself, by NumPy."""
    metrics = Metrics.start(total, PARTS)
    for parts, labels, outputs in seen:
        rows = outputs.numpy()
        right = (rows.argmax(1) == labels.numpy()) & ~np.isnan(rows).any(1)
        metrics.count(parts.tolist(), (~right).tolist())
    return metrics


@pytest.mark.parametrize("size", [1, 3, TOGETHER, TOGETHER + 1])
def test_at_any_moment_the_figures_are_those_of_all_batches_seen(size: int) -> None:
    seen = batches(200, size)
    metrics = Metrics.start(len(seen), PARTS)
    asked = set(np.random.default_rng(0).choice(len(seen), 20, replace=False).tolist())
    for number, batch in enumerate(seen):
        metrics.add(*batch)
        assert metrics.batches == number + 1
        if number in asked:
            assert metrics.error() == counted_at_once(seen[: number + 1], len(seen)).error()
    metrics.flush()
    assert metrics == counted_at_once(seen, len(seen))


def test_the_first_images_of_every_part_are_counted_by_themselves() -> None:
    """Parts in turn, as in a mixed stream; against slices of each part's own list."""
    random = np.random.default_rng(0)
    parts = random.integers(0, PARTS, 700)
    wrong = random.random(700) < 0.4
    metrics = Metrics.start(100, PARTS)
    for begin in range(0, 700, 7):
        few = slice(begin, begin + 7)
        metrics.count(parts[few].tolist(), wrong[few].tolist())
    names = tuple(Part(name, 5) for name in ("fog", "snow", "frost"))
    for part, counted in enumerate(metrics.parts(names)):
        own = wrong[parts == part]
        assert counted.wrong_in_first == tuple(own[:limit].sum() for limit in FIRST_IMAGES)
        assert counted.wrong == own.sum()


def test_a_tally_written_down_at_any_batch_goes_on_as_if_nothing_had_been() -> None:
    seen = batches(150, 1)
    for stop in (0, 1, TOGETHER - 1, TOGETHER, 149):
        metrics = Metrics.start(len(seen), PARTS)
        for batch in seen[:stop]:
            metrics.add(*batch)
        metrics = Metrics.restore(metrics.saved())
        assert metrics.batches == stop
        for batch in seen[stop:]:
            metrics.add(*batch)
        metrics.flush()
        assert metrics.resumed == 1
        whole = counted_at_once(seen, len(seen)).saved()
        assert metrics.saved() == whole | {"resumed": 1}
