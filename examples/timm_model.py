"""Adapts a model of timm: MobileNetV3 on handwritten digits under five shifts.

    pip install timm
    python examples/timm_model.py

The model is trained here on half of scikit-learn's digits, because no weights are downloaded. For
your own, replace `trained` by `timm.create_model(name, pretrained=True)`. Data, training and shifts
are those of digits.py.
"""

from __future__ import annotations

import argparse

import timm
import torch
from digits import TRAINING_BATCH, error, load, shifts, train
from torch import Tensor, nn
from torch.nn import functional

import realistic_tta


def enlarged(images: Tensor) -> Tensor:
    """Return the digits, (image, 1, 8, 8), as color images of 32 pixels."""
    return functional.interpolate(images, scale_factor=4, mode="bilinear").repeat(1, 3, 1, 1)


def trained(name: str, images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Return a model of timm, trained on clean digits."""
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(name, num_classes=10)
    train(model, images, labels, epochs)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Adapt a model of timm.")
    parser.add_argument("--model", default="mobilenetv3_small_050")
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    images, labels = load()
    half = len(images) // 2
    model = trained(arguments.model, enlarged(images[:half]), labels[:half], arguments.epochs)
    layers = realistic_tta.adapt(model).report().layers
    print(f"{arguments.model}: {len(layers)} BatchNorm layers are adapted")
    clean = error(model, enlarged(images[half:]), labels[half:], 64)
    print(f"error on clean digits: {clean:.1f} %\n\n{'shift':8}{'source':>11}{'realistic':>11}")
    for name, shift in shifts().items():
        shifted = enlarged(shift(images[half:]))
        adapted = realistic_tta.adapt(model, source_batch_size=TRAINING_BATCH)
        errors = (error(each, shifted, labels[half:], 16) for each in (model, adapted))
        print(f"{name:8}" + "".join(f"{each:>11.1f}" for each in errors), flush=True)


if __name__ == "__main__":
    main()
