"""How the cost of adaptation grows with the network: depth, width, image size; as ratios, drawn.

    python benchmarks/cost_growth.py --picture docs/images/cost_growth.png

One torch thread, batches of 4. A line that does not rise says that adaptation grows no faster than
the plain forward.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from timing import compare
from torch import nn

import realistic_tta
from realistic_tta.models.resnet import CifarResNet
from realistic_tta.models.wide_resnet import WideResNet

BATCH = 4
Case = tuple[str, int, Callable[[], nn.Module], int]  # what grows, to what, the network, pixels


def cases() -> Iterator[Case]:
    for depth in (8, 20, 44, 110):
        yield "BatchNorm layers", depth - 1, partial(CifarResNet, depth, 10), 32
    for width in (1, 2, 4, 8):
        yield "width", width, partial(WideResNet, 10, width, 10), 32
    for side in (16, 32, 64, 128):
        yield "pixels a side", side, partial(CifarResNet, 20, 10), side


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--seconds", type=float, default=8.0, help="most, for each network")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[tuple[int, float, float]]] = {}
    print(f"{'':18}{'':>6}{'passes=1':>10}{'exact':>8}   time / plain forward, batches of {BATCH}")
    for what, value, build, side in cases():
        torch.manual_seed(0)
        plain, images = build().eval(), torch.rand(BATCH, 3, side, side)
        once = realistic_tta.adapt(plain, "rectified_tema", passes=1)
        exact = realistic_tta.adapt(plain, "rectified_tema")
        with torch.no_grad():
            ratios = compare(
                lambda: plain(images),  # noqa: B023 - called before the next network
                {"once": lambda: once(images), "exact": lambda: exact(images)},  # noqa: B023
                arguments.seconds,
            )
        print(f"{what:18}{value:>6}{ratios['once']!s:>10}{ratios['exact']!s:>8}", flush=True)
        found.setdefault(what, []).append((value, ratios["once"].ratio, ratios["exact"].ratio))
    if arguments.picture:
        draw(found, arguments.picture)


def draw(found: dict[str, list[tuple[int, float, float]]], path: Path) -> None:
    figure, axes = plt.subplots(1, len(found), figsize=(9, 2.8), sharey=True)
    for place, (what, points) in enumerate(found.items()):
        values, once, exact = zip(*points, strict=True)
        axis = axes[place]
        axis.plot(values, exact, "o-", color="#0072B2", label="exact, two passes")
        axis.plot(values, once, "s--", color="#D55E00", label="passes=1")
        axis.set_xscale("log", base=2)
        axis.set_xticks(values, [str(value) for value in values])
        axis.minorticks_off()
        axis.set_xlabel(what)
        axis.set_ylim(0, 3)
        axis.axhline(1, color="grey", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("time / plain forward")
    axes[-1].legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
