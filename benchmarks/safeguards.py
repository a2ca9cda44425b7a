"""What the safeguards cost while all is well: each method's time over its own without them.

    python benchmarks/safeguards.py --batch-sizes 16,1

exclude: on_bad_input="exclude" over "raise". robust: robust=True over False. guard: guard=True over
False, and who answers there (a method that is not trusted costs the source's pass as well; one that
has fallen that pass alone). The package's network on photographs under gaussian noise, one thread;
timing.py says how ratios are taken.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle

import numpy as np
import torch
from timing import Ratio, compare
from torch import Tensor

from realistic_tta import AdaptedModel, adapt
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.corruptions import corrupt
from realistic_tta.models.checkpoints import load_model

METHODS = ("tbn", "tema", "rectified_tema", "realistic", "tent")
ROBUST = METHODS[:4]
TOGETHER = 16  # images in one call at least: the guard shows one in eight to the source


def photographs() -> Tensor:
    """(image, 3, row, column), under noise."""
    noisy = corrupt(
        load_sample().images[:960], "gaussian_noise", 5, generator=np.random.default_rng(0)
    )
    return torch.from_numpy(noisy).permute(0, 3, 1, 2).float() / 255


def calls(adapted: AdaptedModel, images: Tensor, size: int) -> Callable[[], object]:
    """The next batches of the stream, again and again; all images have been seen once."""
    batches, together = cycle(images.split(size)), max(TOGETHER // size, 1)
    for batch in images.split(size):
        adapted(batch)

    def call() -> None:
        for _ in range(together):
            adapted(next(batches))

    return call


def ratios(method: str, size: int, most_seconds: float) -> tuple[dict[str, Ratio], str]:
    """By safeguard; and who answers under the guard."""
    network, images = load_model("cifar10"), photographs()
    watched = adapt(network, method, guard=True)
    chosen = {"exclude": adapt(network, method), "guard": watched}
    if method in ROBUST:
        chosen["robust"] = adapt(network, method, robust=True)
    base = calls(adapt(network, method, on_bad_input="raise"), images, size)
    others = {name: calls(each, images, size) for name, each in chosen.items()}
    found = compare(base, others, most_seconds)
    guard = watched.guard
    assert guard is not None
    who = "source, after a fall" if guard.resting else "method" if guard.trusted else "source"
    return found, who


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-sizes", default="16,1")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seconds", type=float, default=10.0, help="at most, for each line")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| method | batch size | exclude | robust | guard | who answers |")
    print("|---|---|---|---|---|---|")
    for method in arguments.methods.split(","):
        for size in map(int, arguments.batch_sizes.split(",")):
            found, who = ratios(method, size, arguments.seconds)
            cells = [_cell(found.get(name)) for name in ("exclude", "robust", "guard")]
            print(f"| {method} | {size} | {' | '.join(cells)} | {who} |", flush=True)


def _cell(found: Ratio | None) -> str:
    return f"{found.ratio:.3f} ±{found.spread:.3f}" if found else ""


if __name__ == "__main__":
    main()
