"""The cost of adaptation: each method's time as a ratio to the plain eval forward, in one run.

    make bench                                      both models, all methods, batch sizes 200, 16, 1
    python benchmarks/cost.py --models resnet50 --side 224 --batch-sizes 16,1
    python benchmarks/cost.py --models resnet20 --methods realistic/compile=True
    python benchmarks/cost.py --models resnet20 --methods tbn,realistic --channels-last

One torch thread. Every timing is divided by that of a plain forward taken just before it. The
figure is the median of these ratios, followed by half the distance of the quartiles. Weights and
images are random; the time hardly depends on them, except for eta and sar (see below). The last
columns are the fewest plain forwards that a method can do with, and what the reference framework
takes for the methods that train.
"""

from __future__ import annotations

import argparse
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
    "lame": {"method": "lame"},
    "tent": {"method": "tent"},
    # These two learn from confident predictions only, which random weights do not make: with these
    # hyperparameters they learn from every image, which is the most that they can cost.
    "eta": {"method": "eta", "entropy_threshold": 1.0, "margin": 2.0},
    "sar": {"method": "sar", "entropy_threshold": 1.0},
    # Random weights are never confident: the first averages 32 views, the second none.
    "cotta": {"method": "cotta"},
    "cotta, threshold=0": {"method": "cotta", "threshold": 0.0},
    "adacontrast": {"method": "adacontrast"},
}
# The cost of the reference framework (mariodoebler/test-time-adaptation) on a CIFAR-10 ResNet-20,
# measured at batch size 200. At batch size 1 its tent takes 2.9, its sar 5.4; its eta learns
# nothing there, and its adacontrast cannot run.
REFERENCE = {
    "tent": "2.9",
    "eta": "2.8",
    "sar": "5.7",
    "cotta": "44 to 63",
    "adacontrast": "9, and 1 for views",
}
# The fewest plain forwards that a method can do with: a forward is 1, a backward to the affine
# parameters of the norms 1 (the gradients of the activations), a backward to all parameters 2.
FEWEST = {
    "source": 1,
    "tbn": 1,
    "alpha_bn": 1,
    "adapt_bn": 1,
    "tema": 1,
    "realistic": 1,
    "realistic, compile=True": 1,
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
MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet20": (lambda: CifarResNet(20, 10), 32),
    "resnet50": (lambda: ResNet50(1000), 64),
}


def seconds(call: Callable[[Tensor], object], images: Tensor, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call(images)
    return time.process_time() - start


def ratio(
    plain: nn.Module, adapted: nn.Module, images: Tensor, budget: float
) -> tuple[float, float]:
    """Median and spread of adapted time over plain time, measured in turns within the budget."""
    with torch.no_grad():
        plain(images), adapted(images), adapted(images)  # the second call compiles
        repeats = max(1, int(0.02 / seconds(plain, images, 1)))
        ratios: list[float] = []
        end = time.perf_counter() + budget
        while time.perf_counter() < end or len(ratios) < 3:
            base = seconds(plain, images, repeats)
            ratios.append(seconds(adapted, images, repeats) / base)
    quartiles = statistics.quantiles(ratios, n=4)
    return statistics.median(ratios), (quartiles[2] - quartiles[0]) / 2


def measure(
    model: str, arguments: argparse.Namespace, variants: Sequence[str], sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Prints one row per variant, and returns the figures."""
    build, side = MODELS[model]
    side = arguments.side or side
    torch.manual_seed(0)
    layout = torch.channels_last if arguments.channels_last else torch.contiguous_format
    plain: Any = build().eval()
    plain = plain.to(memory_format=layout)
    layers = sum(isinstance(module, nn.BatchNorm2d) for module in plain.modules())
    records: list[dict[str, Any]] = []
    for variant in variants:
        if variant in ONLY_SMALL and model == "resnet50":
            continue
        for size in sizes:
            images = torch.rand(size, 3, side, side).contiguous(memory_format=layout)
            adapted = realistic_tta.adapt(plain, **VARIANTS[variant])  # type: ignore[arg-type]
            middle, spread = ratio(plain, adapted, images, arguments.seconds)
            records.append(
                {
                    "model": f"{model}, {layers} BatchNorm layers, {side} px",
                    "method": variant,
                    "batch_size": size,
                    "ratio": round(middle, 3),
                    "spread": round(spread, 3),
                    "fewest": FEWEST[variant],
                    "reference": REFERENCE.get(variant),
                }
            )
        printed = lines(records)
        print("\n".join(printed if variant == variants[0] else printed[-1:]), flush=True)
    return records


def lines(records: Sequence[dict[str, Any]], methods: Sequence[str] = ()) -> list[str]:
    """The table of one model: two lines of headings, and one per method, of these or of all."""
    sizes = list(dict.fromkeys(each["batch_size"] for each in records))
    found = [
        f"{records[0]['model']}: time / plain eval forward",
        f"{'batch size':26}" + "".join(f"{size:>16}" for size in sizes) + "  fewest  reference",
    ]
    for method in dict.fromkeys(each["method"] for each in records):
        few = [each for each in records if each["method"] == method]
        if methods and method not in methods:
            continue
        cells = [f"{each['ratio']:>9.2f} ±{each['spread']:4.2f} " for each in few]
        beside = f"{few[0]['fewest']:>7}  {few[0]['reference'] or ''}"
        found.append((f"{method:26}" + "".join(cells) + beside).rstrip())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument(
        "--methods",
        default=",".join(each.replace(", ", "/") for each in VARIANTS if each not in IF_ASKED_FOR),
    )
    parser.add_argument("--batch-sizes", default="200,16,1")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each figure")
    parser.add_argument("--side", type=int, help="pixels; 32 for resnet20, 64 for resnet50")
    parser.add_argument("--channels-last", action="store_true", help="of model and images")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    sizes = [int(size) for size in arguments.batch_sizes.split(",")]
    variants = [name.replace("/", ", ") for name in arguments.methods.split(",")]
    print(f"one thread, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    records = []
    for model in arguments.models.split(","):
        print()
        records += measure(model, arguments, variants, sizes)
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
