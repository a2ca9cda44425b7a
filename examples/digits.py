"""Adapts a model of your own to shifted data.

    python examples/digits.py

The data are the 1,797 handwritten digits (8 x 8 pixels) of scikit-learn. A small convolutional
model is trained on half of them in a few seconds. The other half is streamed with five unknown
shifts, at batch sizes 64, 4 and 1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import realistic_tta

TRAINING_BATCH = 64
METHODS: dict[str, dict[str, Any]] = {  # with their options
    "source": {},
    "tbn": {},
    "alpha_bn": {},
    "adapt_bn": {},
    "tema": {"source_batch_size": TRAINING_BATCH},
    "rectified_tema": {"source_batch_size": TRAINING_BATCH},
    "realistic": {"source_batch_size": TRAINING_BATCH},
}
BATCH_SIZES = (64, 4, 1)


def load() -> tuple[Tensor, Tensor]:
    """Return the images, (image, 1, 8, 8) in [0, 1], and the labels, shuffled once."""
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


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    """Train with one-cycle SGD on clean images, shifted by up to a pixel."""
    model.train()
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    steps = epochs * (len(images) // TRAINING_BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        for batch in order.split(TRAINING_BATCH)[: len(images) // TRAINING_BATCH]:
            row, column = torch.randint(-1, 2, (2,), generator=generator).tolist()
            moved = images[batch].roll((row, column), dims=(2, 3))
            loss = functional.cross_entropy(model(moved), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()


def shifts() -> dict[str, Callable[[Tensor], Tensor]]:
    """Return shifts of a deployed camera: noise, blur, bad light, fog."""
    noise = torch.Generator().manual_seed(1)
    kernel = torch.ones(1, 1, 3, 3) / 9
    return {
        "noise": lambda x: (x + 0.3 * torch.randn(x.shape, generator=noise)).clamp(0, 1),
        "blur": lambda x: functional.conv2d(functional.pad(x, (1, 1, 1, 1)), kernel),
        "dim": lambda x: 0.25 * x,
        "fog": lambda x: 0.45 * x + 0.5,
        "gain": lambda x: (3 * x).clamp(0, 1),
    }


def error(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int) -> float:
    """Return the error in percent over a stream of batches."""
    with torch.no_grad():
        wrong = sum(
            int(torch.count_nonzero(model(batch).argmax(1) != truth))
            for batch, truth in zip(images.split(batch_size), labels.split(batch_size), strict=True)
        )
    return 100 * wrong / len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Test-time adaptation on real digits, in under a minute."
    )
    parser.add_argument("--epochs", type=int, default=15)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.perf_counter()

    images, labels = load()
    half = len(images) // 2
    model = build()
    print(f"Training a model with 4 BatchNorm layers on {half} clean digits ...", flush=True)
    train(model, images[:half], labels[:half], epochs)
    images, labels = images[half:], labels[half:]
    print(f"Error on {len(labels)} clean digits: {error(model, images, labels, 64):.1f} %")

    stream = {name: shift(images) for name, shift in shifts().items()}
    print(f"Now the same digits are shifted by {', '.join(stream)}, one after another.")
    print("The model adapts without labels and is not reset. Mean error in percent:\n")
    print(f"{'batch size':16}" + "".join(f"{size:>8}" for size in BATCH_SIZES))
    results: dict[str, list[float]] = {}
    for method, options in METHODS.items():
        results[method] = []
        print(f"{method:16}", end="", flush=True)
        for batch_size in BATCH_SIZES:
            adapted = realistic_tta.adapt(model, method, **options)
            errors = [error(adapted, shifted, labels, batch_size) for shifted in stream.values()]
            results[method].append(sum(errors) / len(errors))
            print(f"{results[method][-1]:>8.1f}", end="", flush=True)
        print()

    before, after = results["source"][-1], results["realistic"][-1]
    print(
        f"\nAt batch size 1, realistic reduces the error from {before:.1f} to {after:.1f} %;"
        f" current-batch statistics (tbn) give {results['tbn'][-1]:.1f} %."
    )
    print(f"{time.perf_counter() - start:.0f} seconds, one thread.")


if __name__ == "__main__":
    main()
