"""What the safeguards cost while all is well: each method's time over its own without them.

    python benchmarks/safeguards.py --batch-sizes 16,1

exclude: on_bad_input="exclude" over "raise". robust: robust=True over False. The package's network
of the CIFAR-10 kind with random weights, one thread; timing.py says how ratios are taken.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from timing import Ratio, compare

from realistic_tta import AdaptedNetwork, adapt
from realistic_tta.networks.resnet import CifarResNet

METHODS = ("tbn", "tema", "rectified_tema", "realistic")


def ratios(method: str, size: int, most_seconds: float) -> dict[str, Ratio]:
    network, images = CifarResNet(20, 10).eval(), torch.rand(size, 3, 32, 32)

    def call(**settings: object) -> partial[AdaptedNetwork]:
        return partial(adapt(network, method, **settings), images)  # type: ignore[arg-type]

    base = call(on_bad_input="raise")
    return compare(base, {"exclude": call(), "robust": call(robust=True)}, most_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-sizes", default="16,1")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seconds", type=float, default=10.0, help="at most, for each line")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| method | batch size | exclude | robust |")
    print("|---|---|---|---|")
    for method in arguments.methods.split(","):
        for size in map(int, arguments.batch_sizes.split(",")):
            found = ratios(method, size, arguments.seconds)
            cells = (f"{each.ratio:.3f} ±{each.spread:.3f}" for each in found.values())
            print(f"| {method} | {size} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
