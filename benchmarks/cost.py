"""What adaptation costs: each method's time as a ratio to the plain eval forward, in one run.

    make bench                      both networks, all methods, batch sizes 200, 16, 1
    python benchmarks/cost.py --network resnet50 --side 224 --batch-sizes 16,1
    python benchmarks/cost.py --network resnet20 --methods realistic/compile=True --batch-sizes 16,1
    python benchmarks/cost.py --network resnet20 --methods tbn,realistic --channels-last
    python benchmarks/cost.py --network cifar10 --methods tbn,realistic --batch-sizes 16

One torch thread. Every timing stands beside a plain forward taken just before it; the figure is the
median of those ratios, behind it the spread (half the distance between the quartiles). Weights and
images are random: but for eta and sar, see below, the time hardly depends on them; `cifar10` is the
package's network on its photographs, one batch after the other. The last columns are the fewest
that a method can do with, and what the reference framework takes for those that train.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import realistic_tta
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.models.checkpoints import load_model
from realistic_tta.models.resnet import CifarResNet, ResNet50

VARIANTS: dict[str, dict[str, object]] = {
    "source": {"method": "source"},
    "tbn": {"method": "tbn"},
    "alpha_bn": {"method": "alpha_bn"},
    "adapt_bn": {"method": "adapt_bn"},
    "tema": {"method": "tema"},
    "rectified_tema, passes=1": {"method": "rectified_tema", "passes": 1},
    "rectified_tema": {"method": "rectified_tema"},
    "realistic": {"method": "realistic"},
    "realistic, compile=True": {"method": "realistic", "compile": True},
    "domains": {"method": "domains"},
    "lame": {"method": "lame"},
    "tent": {"method": "tent"},
    # These two learn from what they are sure of, and random weights are sure of nothing: with
    # these settings they learn from every image, which is the most that they can cost.
    "eta": {"method": "eta", "entropy_threshold": 1.0, "margin": 2.0},
    "sar": {"method": "sar", "entropy_threshold": 1.0},
    # Random weights are sure of nothing: the first looks at 32 views, the second at none.
    "cotta": {"method": "cotta"},
    "cotta, threshold=0": {"method": "cotta", "threshold": 0.0},
    "adacontrast": {"method": "adacontrast"},
}
# What the reference framework (mariodoebler/test-time-adaptation) takes for the same on a CIFAR-10
# ResNet-20, measured at batch size 200. At batch size 1 its tent takes 2.9, its sar 5.4; its eta
# learns nothing there, and its adacontrast cannot run.
REFERENCE = {
    "tent": "2.9",
    "eta": "2.8",
    "sar": "5.7",
    "cotta": "44 to 63",
    "adacontrast": "9, and 1 for views",
}
# What each method cannot do without, in plain forwards: a forward is 1, a backward to the affine
# parameters of the norms 1 (the gradients of the activations), a backward to all parameters 2.
FEWEST = {
    "source": 1,
    "tbn": 1,
    "alpha_bn": 1,
    "adapt_bn": 1,
    "tema": 1,
    "realistic": 1,
    "realistic, compile=True": 1,
    "domains": 1,
    "rectified_tema, passes=1": 1,
    "rectified_tema": 2,
    "lame": 1,
    "tent": 2,
    "eta": 2,
    "sar": 4,  # twice both
    "cotta": 37,  # source, teacher, 32 views, student forward and backward
    "cotta, threshold=0": 5,
    "adacontrast": 7,  # two views of the query, two of the key, the prediction; one backward
}
IF_ASKED_FOR = {"realistic, compile=True"}  # two minutes of compiling for each batch size
ONLY_SMALL = {"cotta"}  # a quarter of an hour on the large network, for the same ratio
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet20": (lambda: CifarResNet(20, 10), 32),
    "resnet50": (lambda: ResNet50(1000), 64),
    "cifar10": (lambda: load_model("cifar10"), 32),
}
RANDOM = "resnet20", "resnet50"  # what `all` stands for


def seconds(call: Callable[[Tensor], object], batches: Sequence[Tensor]) -> float:
    start = time.perf_counter()
    for batch in batches:
        call(batch)
    return time.perf_counter() - start


def ratio(
    plain: nn.Module, adapted: nn.Module, batches: Sequence[Tensor], budget: float
) -> tuple[float, float]:
    """Median and spread of adapted time over plain time, measured in turns within the budget."""
    with torch.no_grad():
        first = batches[0]
        plain(first), adapted(first), adapted(first)  # compiled with the second
        once = seconds(plain, [first])
        repeats = max(1, int(0.02 / once))
        ratios: list[float] = []
        stream = itertools.cycle(batches)
        end = time.perf_counter() + budget
        while time.perf_counter() < end or len(ratios) < 3:
            some = [next(stream) for _ in range(repeats)]
            base = seconds(plain, some)
            ratios.append(seconds(adapted, some) / base)
    quartiles = statistics.quantiles(ratios, n=4)
    return statistics.median(ratios), (quartiles[2] - quartiles[0]) / 2


def batches_for(network: str, size: int, side: int, layout: torch.memory_format) -> list[Tensor]:
    """Photographs for the network that knows them, the same random image again for others."""
    if network in RANDOM:
        return [torch.rand(size, 3, side, side).contiguous(memory_format=layout)]
    photos = torch.from_numpy(load_sample().images).permute(0, 3, 1, 2).float().div(255)
    whole = photos[: len(photos) // size * size].split(size)
    return [batch.contiguous(memory_format=layout) for batch in whole]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--network", choices=[*NETWORKS, "all"], default="all")
    parser.add_argument(
        "--methods",
        default=",".join(each.replace(", ", "/") for each in VARIANTS if each not in IF_ASKED_FOR),
    )
    parser.add_argument("--batch-sizes", default="200,16,1")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each figure")
    parser.add_argument("--side", type=int, help="pixels; 32 for resnet20, 64 for resnet50")
    parser.add_argument("--channels-last", action="store_true", help="of network and images")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    sizes = [int(size) for size in arguments.batch_sizes.split(",")]
    variants = [name.replace("/", ", ") for name in arguments.methods.split(",")]
    records = []
    print(f"one thread, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    for network_name, (build, side) in NETWORKS.items():
        if network_name not in (RANDOM if arguments.network == "all" else [arguments.network]):
            continue
        side = arguments.side or side  # noqa: PLW2901
        torch.manual_seed(0)
        layout = torch.channels_last if arguments.channels_last else torch.contiguous_format
        plain: Any = build().eval()
        plain = plain.to(memory_format=layout)
        layers = sum(isinstance(module, nn.BatchNorm2d) for module in plain.modules())
        print(f"\n{network_name}, {layers} BatchNorm layers, {side} px: time / plain eval forward")
        print(
            f"{'batch size':26}" + "".join(f"{size:>16}" for size in sizes) + "  fewest  reference"
        )
        for variant in variants:
            if variant in ONLY_SMALL and network_name == "resnet50":
                continue
            cells = []
            for size in sizes:
                batches = batches_for(network_name, size, side, layout)
                adapted = realistic_tta.adapt(plain, **VARIANTS[variant])  # type: ignore[arg-type]
                middle, spread = ratio(plain, adapted, batches, arguments.seconds)
                cells.append(f"{middle:>9.2f} ±{spread:4.2f} ")
                records.append(
                    {
                        "network": network_name,
                        "method": variant,
                        "batch_size": size,
                        "ratio": round(middle, 3),
                        "spread": round(spread, 3),
                        "fewest": FEWEST[variant],
                        "reference": REFERENCE.get(variant),
                    }
                )
            beside = f"{FEWEST[variant]:>7}  {REFERENCE.get(variant, '')}"
            print(f"{variant:26}" + "".join(cells) + beside, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
