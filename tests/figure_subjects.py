"""Made-up records and traces to draw figures from; every number differs from every other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bench_subjects import part, record

from realistic_tta.benchmark.results import Record
from realistic_tta.benchmark.traces import Trace, TracePoint
from realistic_tta.data.registry import CORRUPTIONS

METHODS = ("source", "tbn", "tema", "rectified_tema")
SIZES = (64, 4, 1)
IMAGES = 20  # of every corruption
LAYERS = ("bn1", "layer1.bn1", "layer1.bn2")


def run(method: str, size: int, seed: int = 1, **changes: Any) -> Record:
    """A finished experiment whose errors follow from what it is."""
    place = (len(method) * 7 + size * 3 + seed * 5) % 11
    parts = tuple(
        part(name, 5, IMAGES, (place + 2 * number) % IMAGES)
        for number, name in enumerate(CORRUPTIONS)
    )
    error_curve, seen = [], 0
    for each in parts:  # the first half of each all right
        wrong = 100 * each.wrong / (IMAGES / 2)
        error_curve += [(seen + IMAGES // 2, 0.0), (seen + IMAGES, wrong)]
        seen += IMAGES
    values: dict[str, Any] = {
        "error": sum(part.error for part in parts) / len(parts),
        "parts": parts,
        "error_curve": tuple(error_curve),
        "cost": 1 + place / 4,
        "images": IMAGES,
        "finished": "2024-01-01T00:00:00+00:00",
    }
    key = f"{method}-{size}-{seed}-{changes.get('dataset', '')}{changes.get('hyperparameters', '')}"
    key = re.sub(r"\W", "-", key)  # it names files
    return record(key, method=method, batch_size=size, seed=seed, **(values | changes))


def runs(
    methods: Sequence[str] = METHODS, sizes: Sequence[int] = SIZES, **changes: Any
) -> list[Record]:
    return [run(method, size, **changes) for method in methods for size in sizes]


def momentum_runs(data: str = "cifar10-c") -> list[Record]:
    fixed = [{"momentum": momentum} for momentum in (1.0, 0.1, 0.01)]
    return [
        run(
            "tema",
            size,
            dataset=data,
            hyperparameters=hyperparameters,
            error=10.0 * place + size / 10,
        )
        for place, hyperparameters in enumerate([{}, *fixed], start=1)
        for size in (1, 4, 16, 64, 200)
    ]


def trace(key: str) -> Trace:
    """Different numbers for every key; one layer that no batch has reached at first."""
    shift = sum(map(ord, key)) % 13
    points = tuple(
        TracePoint(
            images,
            (0.1, None if images == 4 else 0.2, 0.5),
            (1.0 + shift, None if images == 4 else 10.0 + images, 100.0),
        )
        for images in range(4, 41, 4)
    )
    return Trace(key, LAYERS, points)
