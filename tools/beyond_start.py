"""How soon a method is as good as it gets: its error on the same images after 0 to 1,000 others.

    python tools/beyond_start.py [--methods realistic,rectified_tema] [--batch-sizes 16,1]

On each of the fifteen corruptions at severity 5 a fresh network first sees so many of the package's
photographs, then 200 others, in four parts of 50: for each part it is as it was after the first
ones. Prints the mean over corruptions, percent wrong.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

import realistic_tta
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.corruptions import corrupt
from realistic_tta.data.registry import CORRUPTIONS
from realistic_tta.methods.base import AdaptedModel
from realistic_tta.models.checkpoints import load_model

SEEN = (0, 50, 200, 1000)  # images before those that are counted
COUNTED, PART = 200, 50


def errors(method: str, network: nn.Module, images: Tensor, labels: Tensor, size: int) -> list[int]:
    """How many of the last images are wrong, after each number of first ones."""
    adapted, wrong, place = realistic_tta.adapt(network, method), [], 0
    for seen in SEEN:
        for begin in range(place, seen, size):
            adapted(images[begin : min(begin + size, seen)])
        place = seen
        parts = zip(images[-COUNTED:].split(PART), labels[-COUNTED:].split(PART), strict=True)
        wrong.append(sum(count_wrong(adapted, *part, size) for part in parts))
    return wrong


def count_wrong(adapted: AdaptedModel, images: Tensor, labels: Tensor, size: int) -> int:
    """Of a copy, so that what is counted teaches nothing."""
    again = copy.deepcopy(adapted)
    outputs = torch.cat([again(batch) for batch in images.split(size)])
    return int((outputs.argmax(dim=1) != labels).sum())


def streams() -> Iterator[tuple[Tensor, Tensor]]:
    """The images of each corruption, and their labels."""
    sample = load_sample()
    chosen = slice(None, SEEN[-1] + COUNTED)
    labels = torch.from_numpy(sample.labels[chosen])
    for name in CORRUPTIONS[:15]:
        pixels = corrupt(sample.images[chosen], name, 5, generator=np.random.default_rng(0))
        yield torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255), labels


def table(methods: Sequence[str], sizes: Sequence[int]) -> Iterator[str]:
    network, data = load_model("cifar10"), list(streams())
    yield f"| method | batch size | {' | '.join(f'after {seen:,}' for seen in SEEN)} |"
    yield f"|---|---:|{'---:|' * len(SEEN)}"
    for method in methods:
        for size in sizes:
            found = [errors(method, network, *stream, size) for stream in data]
            means = [100 * fmean(wrong) / COUNTED for wrong in zip(*found, strict=True)]
            yield f"| {method} | {size} | {' | '.join(f'{mean:.1f}' for mean in means)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--methods", default="realistic,rectified_tema")
    parser.add_argument("--batch-sizes", default="16,1")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for line in table(
        given.methods.split(","), [int(size) for size in given.batch_sizes.split(",")]
    ):
        print(line, flush=True)


if __name__ == "__main__":
    main()
