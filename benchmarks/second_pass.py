"""How many second passes `second_pass="when_needed"` leaves out, and what that does to the error.

    python benchmarks/second_pass.py
    python benchmarks/second_pass.py --images 500 --batch-sizes 16,4,1

The package's ResNet-20 on its photographs, four corruptions one after another.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

import realistic_tta
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.corruptions.catalogue import corrupt
from realistic_tta.models.checkpoints import load_model

CORRUPTIONS = ("gaussian_noise", "motion_blur", "fog", "jpeg_compression")


def stream(images: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of shifted images with their labels."""
    sample = load_sample()
    for place, name in enumerate(CORRUPTIONS):
        pixels = corrupt(sample.images[:images], name, 5, np.random.default_rng(place))
        inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
        yield from zip(
            inputs.split(size),
            torch.from_numpy(sample.labels[:images]).split(size),
            strict=True,
        )


def run(images: int, size: int, **settings: Any) -> tuple[float, float]:
    """Percent wrong, and passes a batch."""
    adapted = realistic_tta.adapt(load_model("cifar10"), "rectified_tema", **settings)
    passes, wrong, seen, batches = [0], 0, 0, 0

    def count(*_: Any) -> None:
        passes[0] += 1

    adapted.network.register_forward_hook(count)
    for inputs, labels in stream(images, size):
        wrong += int((adapted(inputs).argmax(dim=1) != labels).sum())
        seen, batches = seen + len(labels), batches + 1
    return 100 * wrong / seen, passes[0] / batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=int, default=500, help="of each corruption")
    parser.add_argument("--batch-sizes", default="16,4,1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("batch size   always   when needed   second passes left out")
    for size in map(int, arguments.batch_sizes.split(",")):
        always, _ = run(arguments.images, size)
        needed, passes = run(arguments.images, size, second_pass="when_needed")  # noqa: S106
        print(f"{size:10}{always:8.1f} %{needed:12.1f} %{200 - 100 * passes:16.0f} %", flush=True)


if __name__ == "__main__":
    main()
