"""Adapts to a stream like a video: labels come in runs, while fog rises and falls.

    python examples/video.py

A scene shows photographs of one class for 10 to 40 frames. After each scene the fog changes by one
step of severity, from 1 to 5 and back. Every frame is a batch of its own. The program compares the
model as trained with the default, and with the options that are made for such streams. Model and
photographs are those of the package.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

import realistic_tta
from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.data.corruptions import corrupt
from realistic_tta.models.checkpoints import load_model

SEVERITIES = (1, 2, 3, 4, 5, 4, 3, 2)
VARIANTS: dict[str, dict[str, Any]] = {
    "source": {"method": "source"},
    "realistic": {},
    "realistic, guard": {"guard": True},
    "realistic, smooth_labels": {"smooth_labels": True},
}


def video(frames: int, seed: int) -> Iterator[tuple[Tensor, int]]:
    """Yields frames, (1, 3, 32, 32) in [0, 1], with their labels."""
    photographs = load_bundled_images()
    generator = np.random.default_rng(seed)
    scene = 0
    while frames > 0:
        label = int(generator.integers(10))
        length = min(frames, int(generator.integers(10, 41)))
        of_class = np.flatnonzero(photographs.labels == label)
        chosen = photographs.take(generator.choice(of_class, length, replace=False))
        foggy = corrupt(chosen, "fog", SEVERITIES[scene % len(SEVERITIES)], generator)
        for frame in torch.from_numpy(foggy).permute(0, 3, 1, 2) / 255:
            yield frame[None], label
        frames, scene = frames - length, scene + 1


def main() -> None:
    parser = argparse.ArgumentParser(description="Adapt to a stream like a video.")
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    model = load_model("cifar10")
    adapted = {name: realistic_tta.adapt(model, **kwargs) for name, kwargs in VARIANTS.items()}
    wrong = dict.fromkeys(adapted, 0)
    print("error so far, in percent\n")
    print(f"{'frames':>8}" + "".join(f"{name:>26}" for name in adapted))
    for count, (frame, label) in enumerate(video(arguments.frames, arguments.seed), start=1):
        for name, each in adapted.items():
            wrong[name] += int(each(frame).argmax() != label)
        if count % 250 == 0 or count == arguments.frames:
            errors = (100 * missed / count for missed in wrong.values())
            print(f"{count:>8}" + "".join(f"{each:>26.1f}" for each in errors), flush=True)
    about_the_stream, *_ = str(adapted["realistic"].report()).split("\n  ")
    print(f"\n{about_the_stream}")


if __name__ == "__main__":
    main()
