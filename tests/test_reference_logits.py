"""Predictions are those that were recorded before the methods were rebuilt.

On the machine that recorded them they are bit-identical; other processors round differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from realistic_tta import adapt
from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.models.checkpoints import load_model

RECORDED = Path(__file__).parent / "assets" / "reference_logits.safetensors"
BATCHES = {200: 3, 16: 12, 4: 24, 1: 40}


@cache
def recorded() -> dict[str, Tensor]:
    with safe_open(RECORDED, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict


@cache
def model_of(name: str) -> nn.Module:
    return load_model(name)


@cache
def shifted_images() -> Tensor:
    """600 of the bundled images, darker, with less contrast and noise."""
    images = torch.from_numpy(load_bundled_images().images[:600]).permute(0, 3, 1, 2).float() / 255
    generator = torch.Generator("cpu").manual_seed(29)
    noise = torch.randn(images.shape, generator=generator)
    return (images * 0.5 + 0.2 + 0.15 * noise).clamp(0, 1)


def options_of(variant: str) -> tuple[str, dict[str, Any]]:
    method, *options = variant.split(",")
    pairs = (option.split("=") for option in options)
    return method, {name: int(value) if value.isdigit() else value for name, value in pairs}


def keys() -> Iterator[str]:
    """Every recorded stream, but each batch size on one of the models only."""
    with safe_open(RECORDED, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 - not a dict
            model, _, size = key.split("/")
            if (model == "cifar10") == (int(size) in (16, 1)):
                yield key


@pytest.mark.parametrize("key", list(keys()))
def test_the_last_batch_is_predicted_as_recorded(key: str) -> None:
    name, variant, size = key.split("/")
    method, options = options_of(variant)
    adapted = adapt(model_of(name), method, **options)
    for batch in shifted_images().split(int(size))[: BATCHES[int(size)]]:
        logits = adapted(batch)
    expected = recorded()[key]
    torch.testing.assert_close(logits[:: 10 if size == "200" else 1], expected, atol=1e-5, rtol=0.0)
