"""What the demo measures: one method at one batch size on a stream of fifteen corruptions.

`prepare` corrupts the package's own photographs; `measure` runs one method over them. workers.py
does it for all methods and batch sizes, on every core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from realistic_tta.benchmark.estimate import LAUNCH, PASSES
from realistic_tta.datasets.catalogue import CIFAR10_CLASSES, CORRUPTIONS
from realistic_tta.datasets.generate import generate
from realistic_tta.datasets.images import Images
from realistic_tta.datasets.sample import load_sample
from realistic_tta.datasets.stored import open_cifar_c
from realistic_tta.errors import SettingError, unknown
from realistic_tta.methods.catalogue import METHODS, adapt
from realistic_tta.networks.checkpoints import load_network

NETWORK = "cifar10"
TRAINING_BATCH = 128


@dataclass(frozen=True)
class Setup:
    """images: how many photographs are shown in each corruption. severity: 1 to 5."""

    methods: tuple[str, ...] = ("source", "tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema")
    batch_sizes: tuple[int, ...] = (64, 4, 1)
    images: int = 256
    severity: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for method in self.methods:
            if method not in METHODS:
                raise SettingError(unknown("method", method, METHODS))
        if not self.methods or not self.batch_sizes or min(self.batch_sizes) < 1:
            raise SettingError(
                f"methods {self.methods} at batch sizes {self.batch_sizes}; "
                "expected at least one of each, sizes of 1 or more"
            )
        most = len(load_sample())
        if not 1 <= self.images <= most:
            raise SettingError(f"images is {self.images}; expected 1 to {most}, the sample's size")

    def cells(self) -> list[Cell]:
        """What is to be measured, the longest first; the source is the same at every size."""
        sizes = {
            name: self.batch_sizes[:1] if name == "source" else self.batch_sizes
            for name in self.methods
        }
        found = [Cell(name, size) for name in self.methods for size in sizes[name]]
        return sorted(found, key=lambda cell: -work(cell, self.images))


class Cell(NamedTuple):
    """One number of the table."""

    method: str
    batch_size: int


def work(cell: Cell, images: int) -> int:
    """What a cell costs, in images through the plain network, roughly: for the progress bar."""
    return PASSES.get(cell.method, 1) * (images + LAUNCH * -(-images // cell.batch_size))


def prepare(setup: Setup, folder: Path, workers: int) -> None:
    """Writes the corrupted photographs, unless they are there."""
    sample = load_sample()
    generate(
        sample.images[: setup.images],
        sample.labels[: setup.images],
        folder,
        severities=(setup.severity,),
        seed=setup.seed,
        workers=workers,
    )


def measure(
    cell: Cell, setup: Setup, folder: Path, report: Callable[[int], None] = lambda _: None
) -> dict[str, float]:
    """Percent wrong by corruption; they come one after another and the network is not told.

    report: called with the work done since the last call.
    """
    adapted = adapt(load_network(NETWORK), cell.method, source_batch_size=TRAINING_BATCH)
    damaged = open_cifar_c(folder, CIFAR10_CLASSES)
    errors = {}
    for name in CORRUPTIONS:
        wrong = 0
        for images, labels in _batches(damaged.part(name, setup.severity), cell.batch_size):
            wrong += int(torch.count_nonzero(adapted(images).argmax(1) != labels))
            report(work(cell, len(labels)))
        errors[name] = 100 * wrong / setup.images
    return errors


def clean_error() -> float:
    """Percent wrong of the network as trained, on the whole sample as it was taken."""
    network, sample = load_network(NETWORK), load_sample()
    with torch.no_grad():
        wrong = sum(
            int(torch.count_nonzero(network(images).argmax(1) != labels))
            for images, labels in _batches(sample, 200)
        )
    return 100 * wrong / len(sample)


def _batches(part: Images, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images in [0, 1], (image, colour, row, column), and labels; the last batch may be smaller."""
    for start in range(0, len(part), size):
        few = np.array(part.images[start : start + size])
        images = torch.from_numpy(few).permute(0, 3, 1, 2) / 255
        yield images, torch.from_numpy(part.labels[start : start + size])
