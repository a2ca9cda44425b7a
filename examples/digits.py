"""Adapt a network of your own: train one on clean digits, show it shifted ones, watch it recover.

    python examples/digits.py

Takes the 1,797 real handwritten digits (8 x 8 pixels) that scikit-learn carries, trains a small
convolutional network on half of them in a few seconds, then streams the other half through five
shifts it was never told of, at batch sizes 64, 4 and 1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import realistic_tta

TRAINING_BATCH = 64
METHODS = ("source", "tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema")
BATCH_SIZES = (64, 4, 1)


def load() -> tuple[Tensor, Tensor]:
    """Images (image, 1, 8, 8) in [0, 1] and labels, shuffled once."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.from_numpy(digits.images).float()[order, None] / 16
    return images, torch.from_numpy(digits.target).long()[order]


def build() -> nn.Module:
    def block(inputs: int, outputs: int) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())

    return nn.Sequential(
        *(block(1, 24), block(24, 48), nn.MaxPool2d(2), block(48, 64), block(64, 64)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )


def train(network: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    """One-cycle SGD on clean images only, each moved by up to a pixel."""
    network.train()
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    steps = epochs * (len(images) // TRAINING_BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        for batch in order.split(TRAINING_BATCH)[: len(images) // TRAINING_BATCH]:
            row, column = torch.randint(-1, 2, (2,), generator=generator).tolist()
            moved = images[batch].roll((row, column), dims=(2, 3))
            loss = functional.cross_entropy(network(moved), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()


def shifts() -> dict[str, Callable[[Tensor], Tensor]]:
    """What the deployed network meets: a new sensor, bad light, fog."""
    noise = torch.Generator().manual_seed(1)
    kernel = torch.ones(1, 1, 3, 3) / 9
    return {
        "noise": lambda x: (x + 0.3 * torch.randn(x.shape, generator=noise)).clamp(0, 1),
        "blur": lambda x: functional.conv2d(functional.pad(x, (1, 1, 1, 1)), kernel),
        "dim": lambda x: 0.25 * x,
        "fog": lambda x: 0.45 * x + 0.5,
        "gain": lambda x: (3 * x).clamp(0, 1),
    }


def error(network: nn.Module, images: Tensor, labels: Tensor, batch_size: int) -> float:
    """Percent wrong, the images streamed in batches."""
    with torch.no_grad():
        wrong = sum(
            int(torch.count_nonzero(network(batch).argmax(1) != truth))
            for batch, truth in zip(images.split(batch_size), labels.split(batch_size), strict=True)
        )
    return 100 * wrong / len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description="Adaptation on real digits, in under a minute.")
    parser.add_argument("--epochs", type=int, default=15)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.perf_counter()

    images, labels = load()
    half = len(images) // 2
    network = build()
    print(f"training a 4-layer network on {half} clean digits ...", flush=True)
    train(network, images[:half], labels[:half], epochs)
    images, labels = images[half:], labels[half:]
    print(f"error on {len(labels)} clean digits: {error(network, images, labels, 64):.1f} %")

    stream = {name: shift(images) for name, shift in shifts().items()}
    print(f"now the same digits come with {', '.join(stream)}, one after another;")
    print("the network is not told, has no labels, and carries on. Mean error in percent:\n")
    print(f"{'images at once':16}" + "".join(f"{size:>8}" for size in BATCH_SIZES))
    results: dict[str, list[float]] = {}
    for method in METHODS:
        results[method] = []
        print(f"{method:16}", end="", flush=True)
        for batch_size in BATCH_SIZES:
            adapted = realistic_tta.adapt(network, method, source_batch_size=TRAINING_BATCH)
            errors = [error(adapted, shifted, labels, batch_size) for shifted in stream.values()]
            results[method].append(sum(errors) / len(errors))
            print(f"{results[method][-1]:>8.1f}", end="", flush=True)
        print()

    before, after = results["source"][-1], results["rectified_tema"][-1]
    print(
        f"\nOne image at a time, rectified_tema takes the error from {before:.1f} to {after:.1f} %;"
        f" current-batch statistics (tbn) give {results['tbn'][-1]:.1f} %."
    )
    print(f"{time.perf_counter() - start:.0f} seconds, one thread.")


if __name__ == "__main__":
    main()
