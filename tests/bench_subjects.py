"""A small world to run benchmarks in: data, a model, and methods and runs that misbehave.

In a module of its own, so that worker processes can import it.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from published import random_images
from safetensors.torch import save_file
from subjects import convolutional
from torch import Tensor

from realistic_tta.benchmark.experiment import Experiment
from realistic_tta.benchmark.metrics import Metrics
from realistic_tta.benchmark.results import FIRST_IMAGES, PartResult, Record
from realistic_tta.benchmark.runner import Job, evaluate
from realistic_tta.core.adapted_model import Prediction
from realistic_tta.core.batch import Batch
from realistic_tta.data.registry import CLEAN, CORRUPTIONS
from realistic_tta.methods.source import SourceModel
from realistic_tta.models.registry import MODELS
from realistic_tta.models.registry import SourceModel as RegisteredModel


def part(corruption: str, severity: int, images: int, wrong: int) -> PartResult:
    """A part whose wrong images come first."""
    first = tuple(min(wrong, limit) for limit in FIRST_IMAGES)
    return PartResult(corruption, severity, images, wrong, first)


PARTS = (part("fog", 5, 8, 2), part("snow", 5, 8, 4))


def record(key: str = "a", **changes: Any) -> Record:
    made = Record(
        key=key,
        experiment=key,
        model="cifar10",
        dataset="cifar10-c",
        scenario="continual",
        method="tbn",
        hyperparameters={},
        batch_size=4,
        seed=1,
        images=8,
        order="shuffled",
        delta=None,
        severity=5,
        stream="s",
        model_checksum="n",
        status="done",
        error=37.5,
        parts=PARTS,
        error_curve=((8, 25.0), (16, 50.0)),
        seconds=0.1 + 0.2,
    )
    return dataclasses.replace(made, **changes)


def write_world(folder: Path, images: int) -> None:
    """CIFAR-10-C, clean too, whose first pixel tells the label; a model that has learnt nothing."""
    data = folder / "cifar10-c"
    data.mkdir(parents=True)
    labels = np.random.default_rng(5).permutation(np.arange(images) % 10)
    np.save(data / "labels.npy", np.tile(labels, 5))
    for seed, corruption in enumerate((*CORRUPTIONS, CLEAN)):
        pixels = random_images(5 * images, seed=seed)
        pixels[:, 0, 0, 0] = np.tile(labels, 5)
        np.save(data / f"{corruption}.npy", pixels)
    (folder / "models").mkdir()
    save_file(convolutional(10).state_dict(), folder / "models" / "tiny.safetensors")


TINY = RegisteredModel(convolutional, 10, "cifar10", "tests only: three layers")


def experiment(method: str = "tema", scenario: str = "continual", **how: Any) -> Experiment:
    return Experiment("tiny", "cifar10-c", scenario, method, **{"batch_size": 4} | how)


def evaluate_tiny(
    job: Job, folder: Path, report: Callable[[Metrics], None], save_every: float
) -> Record:
    """`evaluate` in a process that has not heard of the tests' model."""
    MODELS["tiny"] = TINY
    return evaluate(job, folder, report, save_every)


def figures(record: Record) -> dict[str, Any]:
    """What an interruption must not change: all but times."""
    kept = (
        "key",
        "error",
        "parts",
        "error_curve",
        "status",
        "message",
        "stream",
        "images",
        "hyperparameters",
    )
    return {name: getattr(record, name) for name in kept}


class Oracle(SourceModel):
    """Always right, by looking where it must not: the label is in the first pixel."""

    name = "oracle"

    def _predict(self, batch: Batch) -> Prediction:
        images: Tensor = batch.args[0]
        labels = (images[:, 0, 0, 0] * 255).round().long()
        return self._after(torch.nn.functional.one_hot(labels, 10).float())


class Guess(SourceModel):
    """Answers at random."""

    name = "guess"
    random = torch.Generator().manual_seed(0)

    def _predict(self, batch: Batch) -> Prediction:
        return self._after(torch.rand(batch.size, 10, generator=self.random))


def dies_twice(
    job: Job, folder: Path, report: Callable[[Metrics], None], save_every: float
) -> Record:
    """Killed in the middle of the first run and of the second."""
    mark = folder / f"deaths-{job.key}"
    deaths = len(mark.read_text()) if mark.exists() else 0

    def die(metrics: Metrics) -> None:
        report(metrics)
        if metrics.batches > 10 * (deaths + 1) and deaths < 2:
            mark.write_text("x" * (deaths + 1))
            os.kill(os.getpid(), signal.SIGKILL)

    return evaluate_tiny(job, folder, die, save_every)


def misbehaves(
    job: Job, folder: Path, report: Callable[[Metrics], None], save_every: float
) -> Record:
    """Raises on tbn, ends the process on source."""
    if job.experiment.method == "tbn":
        raise RuntimeError("tbn is not well today")
    if job.experiment.method == "source":
        os._exit(3)
    return evaluate_tiny(job, folder, report, save_every)


def waits_for_a_word(
    job: Job, folder: Path, report: Callable[[Metrics], None], save_every: float
) -> Record:
    """Leaves its process id, and after a few batches waits until there is a file `go`."""
    (folder / f"process-{job.key}").write_text(str(os.getpid()))

    def wait(metrics: Metrics) -> None:
        report(metrics)
        while metrics.batches == 5 and not (folder / "go").exists():
            time.sleep(0.02)

    return evaluate_tiny(job, folder, wait, save_every)


def evaluate_by_word(pipe: Any, data: Path, job: Job, folder: Path) -> None:
    """Tells every batch, saves after each, and goes on to the next when told to."""
    os.environ["RTTA_DATA"] = str(data)
    torch.set_num_threads(1)

    def ask(metrics: Metrics) -> None:
        pipe.send(metrics.batches)
        pipe.recv()

    evaluate_tiny(job, folder, ask, save_every=0.0)
