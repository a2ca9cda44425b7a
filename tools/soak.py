"""Long-running stability: memory and cost after 100,000 batches of one image must not have grown.

    python tools/soak.py [--batches 100000] [--methods tbn,tema,rectified_tema,tent]

Real digits (scikit-learn's, 8 x 8 pixels) under light that changes every thousand images go through
a small model trained on them. One process, one thread. Memory is what the system holds for the
process (RSS); cost is the method's CPU time over the plain model's, measured in the same thousand
batches, so that other work on the machine does not look like a drift. Ends with code 1 if the
memory grew by more than 4 MB or the cost by more than 10 percent.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import realistic_tta

BLOCK = 1000  # batches
SLICE = 100  # batches by which the method and the plain model take turns
TENTH = 10  # the start, the middle and the end of a run are a tenth of it each
MOST_GROWTH = 4.0  # MB
MOST_DRIFT = 1.10
METHODS = "tbn,tema,rectified_tema,tent"


class Block(NamedTuple):
    """A thousand batches: MB of the process, CPU seconds of the method and of the plain model."""

    memory: float
    method: float
    plain: float


def digits() -> tuple[Tensor, Tensor]:
    """(image, 1, 8, 8) in [0, 1], and labels."""
    found = load_digits()
    return torch.from_numpy(found.images).float()[:, None] / 16, torch.from_numpy(found.target)


def trained(images: Tensor, labels: Tensor, epochs: int = 8) -> nn.Module:
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


def light(images: Tensor, number: int) -> Tensor:
    """Another brightness and contrast for every block."""
    draw = torch.Generator().manual_seed(number)
    contrast, brightness = torch.rand(2, generator=draw).tolist()
    chosen = torch.randint(len(images), (BLOCK,), generator=draw)
    shown: Tensor = images[chosen] * (0.3 + contrast) + 0.5 * brightness
    return shown


def memory() -> float:
    """MB that the system holds for this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def seconds(model: nn.Module, images: Iterable[Tensor]) -> float:
    start = time.process_time()
    with torch.no_grad():
        for image in images:
            model(image)
    return time.process_time() - start


def soak(model: nn.Module, method: str, images: Tensor, blocks: int) -> Iterator[Block]:
    taken = {each.name for each in fields(realistic_tta.METHODS[method].settings_type)}
    known = {"classes": 10, "source_batch_size": 64}
    options: dict[str, Any] = {name: value for name, value in known.items() if name in taken}
    adapted = realistic_tta.adapt(model, method, **options)
    for number in range(blocks):
        batches = light(images, number).split(1)
        method_seconds = plain_seconds = 0.0
        for start in range(0, BLOCK, SLICE):
            method_seconds += seconds(adapted, batches[start : start + SLICE])
            plain_seconds += seconds(model, batches[start : start + SLICE])
        yield Block(memory(), method_seconds, plain_seconds)


def summary(method: str, blocks: Sequence[Block]) -> tuple[str, bool]:
    """A line of the table, and whether nothing grew. The first block warms up and is left out."""
    measured = blocks[1:]
    share = max(len(measured) // TENTH, 1)
    middle = (len(measured) - share) // 2
    parts = measured[:share], measured[middle : middle + share], measured[-share:]
    held = [median(block.memory for block in part) for part in parts]
    took = [median(block.method for block in part) for part in parts]
    cost = [median(block.method / block.plain for block in part) for part in parts]
    growth, drift = held[-1] - held[0], cost[-1] / cost[0]
    cells = [
        method,
        " / ".join(f"{each:.1f}" for each in held),
        f"{growth:+.1f} MB",
        " / ".join(f"{each:.2f} s" for each in took),
        " / ".join(f"{each:.2f}" for each in cost),
        f"{100 * (drift - 1):+.1f} %",
    ]
    return f"| {' | '.join(cells)} |", growth <= MOST_GROWTH and drift <= MOST_DRIFT


def main() -> int:
    parser = argparse.ArgumentParser(description="Batches of one image, for a long time.")
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--methods", default=METHODS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = digits()
    model = trained(images, labels)
    print(f"{arguments.batches:,} batches of one image; start / middle / end of the run\n")
    print("| method | MB held | growth | CPU a thousand | over the plain model | drift |")
    print("|---|---|---|---|---|---|", flush=True)
    good = True
    for method in arguments.methods.split(","):
        blocks = list(soak(model, method, images, max(arguments.batches // BLOCK, 2)))
        line, steady = summary(method, blocks)
        print(line, flush=True)
        good = good and steady
    print("\nnothing grew" if good else "\nmemory or cost grew")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
