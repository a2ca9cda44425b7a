"""What a replay brings: seconds of small batches one by one, over those in one large forward.

    python benchmarks/replay.py
    python benchmarks/replay.py --together 256 --batch-sizes 1

The package's ResNet-20 on its photographs, of lower contrast, one torch thread. Both are measured
in turns, chunk by chunk; the figure is the median of the ratios, above 1 where replay is faster.
Sweeps: how often rectified_tema measures a chunk until its prior stands still, on average; one by
one it measures once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import torch
from torch import Tensor

import realistic_tta
from realistic_tta.benchmark.replay import TOGETHER
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.methods.replay import replay
from realistic_tta.models.checkpoints import load_model

VARIANTS: dict[str, dict[str, Any]] = {
    "source": {"method": "source"},
    "tbn": {"method": "tbn"},
    "adapt_bn": {"method": "adapt_bn"},
    "tema": {"method": "tema"},
    "rectified_tema, passes=1": {"method": "rectified_tema", "passes": 1},
    "rectified_tema": {"method": "rectified_tema"},
}


def shifted_images(count: int) -> Tensor:
    """(image, colour, row, column), with two fifths of the contrast."""
    pixels = torch.from_numpy(load_sample().images[:count])
    return 0.3 + 0.4 * pixels.permute(0, 3, 1, 2).float().div(255).contiguous()


def compare(how: dict[str, Any], chunks: list[Tensor], size: int) -> tuple[float, float, float]:
    """Seconds an image one by one, those of one by one over the replay's, and sweeps a chunk."""
    network = load_model("cifar10")
    one, many = (realistic_tta.adapt(network, **how) for _ in range(2))
    alone, ratios, sweeps = [], [], []
    for images in chunks:
        batches = images.split(size)
        begin = time.perf_counter()
        for batch in batches:
            one(batch)
        middle = time.perf_counter()
        sweeps.append(replay(many, images, [len(batch) for batch in batches]).sweeps)
        end = time.perf_counter()
        alone.append((middle - begin) / len(images))
        ratios.append((middle - begin) / (end - middle))
    # The first chunk warms up, and starts from a prior of 0.
    return statistics.median(alone[1:]), statistics.median(ratios[1:]), statistics.fmean(sweeps[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batch-sizes", default="1,2,4")
    parser.add_argument("--together", type=int, default=TOGETHER, help="images in one forward")
    parser.add_argument("--chunks", type=int, default=4)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    together = arguments.together
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}; {together} images together")
    chunks = list(shifted_images(together * arguments.chunks).split(together))
    print(f"{'':26}{'batch size':>10}{'ms/image':>10}{'ratio':>8}{'sweeps':>8}")
    for name, how in VARIANTS.items():
        for size in map(int, arguments.batch_sizes.split(",")):
            seconds, ratio, sweeps = compare(how, chunks, size)
            print(f"{name:26}{size:10}{1000 * seconds:10.2f}{ratio:8.2f}{sweeps:8.1f}", flush=True)


if __name__ == "__main__":
    main()
