"""Records that nobody measured, near the paper's figures: as many as a test wants."""

from __future__ import annotations

import json
import random
from pathlib import Path

from realistic_tta.benchmark.paper_tables import paper_errors
from realistic_tta.benchmark.results import PartResult, Record
from realistic_tta.data.registry import CORRUPTIONS

COSTS = {
    "source": 1,
    "tbn": 1.1,
    "alpha_bn": 1.1,
    "adapt_bn": 1.1,
    "rectified_tema": 2.2,
    "lame": 1.05,
    "tent": 2.9,
    "eta": 2.7,
    "sar": 5.4,
    "cotta": 18,
    "adacontrast": 9.5,
}
SIZES = (200, 64, 16, 4, 2, 1)
IMAGES = 10_000


def made_up(seeds: int = 1, scenarios: tuple[str, ...] = ("continual",)) -> list[Record]:
    """Methods x batch sizes x scenarios x seeds on CIFAR-10-C."""
    return [
        _record(method, size, scenario, seed)
        for scenario in scenarios
        for method in COSTS
        for size in SIZES
        for seed in range(1, seeds + 1)
    ]


def _record(method: str, size: int, scenario: str, seed: int) -> Record:
    chance = random.Random(f"{method} {size} {scenario} {seed}")  # noqa: S311 - no secret
    figures = paper_errors("cifar10-c", scenario) or paper_errors("cifar10-c", "continual")
    middle = figures[method, size] * chance.uniform(0.98, 1.02)
    hardness = {name: random.Random(name).uniform(0.7, 1.3) for name in CORRUPTIONS}  # noqa: S311
    errors = [min(99.9, middle * hardness[name]) for name in CORRUPTIONS]
    parts = tuple(
        PartResult(name, 5, IMAGES, round(error * IMAGES / 100), (0, 0, 0))
        for name, error in zip(CORRUPTIONS, errors, strict=True)
    )
    points = [min(100.0, max(0, errors[n * 15 // 200] + chance.gauss(0, 1.5))) for n in range(200)]
    key = f"{chance.getrandbits(64):016x}"
    seconds = 60 * COSTS[method] * (1 + 8 / size)
    return Record(
        key=key,
        experiment=key,
        model="wrn-28-10",
        dataset="cifar10-c",
        scenario=scenario,
        method=method,
        hyperparameters={},
        batch_size=size,
        seed=seed,
        images=None,
        order="shuffled",
        delta=None,
        severity=5,
        stream=f"{size * 1000 + seed:016x}",
        model_checksum="00c0ffee00c0ffee",
        status="done",
        error=sum(part.error for part in parts) / len(parts),
        parts=parts,
        error_curve=tuple((750 * (n + 1), error) for n, error in enumerate(points)),
        seconds=seconds,
        method_seconds=0.9 * seconds,
        cost=COSTS[method] * chance.uniform(0.95, 1.05),
        peak_memory=chance.uniform(500, 900),
        finished="2026-01-02T03:04:05+00:00",
        device="cpu",
        python="3.11.7",
        torch="2.13.0",
        package="0.1.0",
        commit="0a9f563",
    )


def write_trace(folder: Path, key: str, layers: int = 13, points: int = 200) -> None:
    """As `rtta bench --traces` leaves it beside a record."""
    chance = random.Random(key)  # noqa: S311 - no secret
    depth = [place / layers for place in range(layers)]
    trace = {
        "key": key,
        "layers": [f"block{place // 4 + 1}.bn{place % 4}" for place in range(layers)],
        "points": [
            [
                750 * (n + 1),
                [0.5 * share for share in depth],
                [(1 + 30 * share) * (1 + chance.random()) for share in depth],
            ]
            for n in range(points)
        ],
    }
    (folder / "traces").mkdir(exist_ok=True, parents=True)
    (folder / "traces" / f"{key}.json").write_text(json.dumps(trace))
