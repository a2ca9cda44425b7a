"""The models that come with the package are what their cards say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.data.corruptions import corrupt
from realistic_tta.data.registry import CORRUPTIONS, EXTRA_CORRUPTIONS
from realistic_tta.models.checkpoints import load_model
from realistic_tta.models.registry import EMBEDDED, find

NAMES = sorted(file.stem for file in EMBEDDED.glob("*.safetensors"))
PROMISED = {"cifar10": 9.0, "cifar100": 34.0}  # percent wrong on clean test images, at most


def card(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EMBEDDED / f"{name}.json").read_text())
    return found


def error(model: nn.Module, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> float:
    """Percent wrong, by NumPy."""
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    with torch.no_grad():
        guesses = torch.cat([model(batch) for batch in pixels.split(200)]).numpy().argmax(1)
    return float(100 * (guesses != labels).mean())


def test_the_promised_models_are_there() -> None:
    assert sorted(PROMISED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_how_the_model_was_made_and_how_good_it_is(name: str) -> None:
    says = card(name)
    assert says["dataset"] == find(name).dataset
    assert says["clean_error"] <= PROMISED[name]
    assert says["source_batch_size"] == says["recipe"]["batch_size"] == 128
    assert set(says["error_by_corruption"]) == set(CORRUPTIONS)
    assert min(says["error_by_corruption"].values()) > says["clean_error"]
    assert (EMBEDDED / f"{name}.safetensors").stat().st_size <= 3e6


def test_the_error_on_the_bundled_images_is_that_of_the_card() -> None:
    """2,000 of the 10,000 images: within three standard errors of a sample."""
    sample, says = load_bundled_images(), card("cifar10")["clean_error"]
    spread = 100 * np.sqrt(says / 100 * (1 - says / 100) / len(sample))
    assert abs(error(load_model("cifar10"), sample.images, sample.labels) - says) < 3 * spread


# Their published parameters trade one kind of damage for another, or hardly grow.
NOT_BY_SEVERITY = {"glass_blur", "snow", "brightness", "elastic_transform", "spatter", "saturate"}


@pytest.mark.parametrize("name", [*CORRUPTIONS, *EXTRA_CORRUPTIONS])
def test_more_severe_corruptions_cause_more_errors(name: str) -> None:
    model, sample = load_model("cifar10"), load_bundled_images()
    few, labels = sample.images[:400], sample.labels[:400]
    clean, light, middle, heavy = (
        error(model, images, labels)
        for images in (
            few,
            *(corrupt(few, name, severity, np.random.default_rng(0)) for severity in (1, 3, 5)),
        )
    )
    assert clean < heavy  # severity 1 may be too light to be felt
    if name not in NOT_BY_SEVERITY:
        assert light < middle < heavy
