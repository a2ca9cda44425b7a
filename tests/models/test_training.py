from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from subjects import on_cpu
from torch import Tensor, nn

from realistic_tta.errors import ModelError, StateError
from realistic_tta.models.training import Progress, Recipe, augment, train

RECIPE = Recipe(epochs=4, batch_size=16, peak_rate=0.05, averaging=0.8, padding=1)


def data(count: int = 96) -> tuple[Tensor, Tensor]:
    """Dark and bright images, noisy: learnt in a few steps."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    noise = torch.randint(0, 100, (count, 3, 8, 8), generator=generator)
    return (noise + 120 * labels[:, None, None, None]).to(torch.uint8), labels


def build() -> nn.Module:
    with on_cpu():
        return nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 2)
        )


def state(model: nn.Module) -> list[Tensor]:
    return list(model.state_dict().values())


def test_a_simple_task_is_learnt(tmp_path: Path) -> None:
    images, labels = data()
    model = train(build(), images, labels, RECIPE, checkpoint=tmp_path / "checkpoint")
    assert not model.training
    with torch.no_grad():
        assert (model(images / 255).argmax(1) == labels).all()


def test_augmix_is_learnt_from_too(tmp_path: Path) -> None:
    images, labels = data()
    recipe = dataclasses.replace(RECIPE, augmix=True, epochs=8)
    model = train(build(), images, labels, recipe, checkpoint=tmp_path / "checkpoint")
    with torch.no_grad():
        assert (model(images / 255).argmax(1) == labels).float().mean() > 0.9


def test_a_batch_norm_momentum_keeps_the_statistics_of_the_training(tmp_path: Path) -> None:
    """After 24 steps at momentum 0.01 the mean is still far from that of the images."""
    images, labels = data()
    with on_cpu():
        model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 2))
    recipe = dataclasses.replace(RECIPE, bn_momentum=0.01, padding=0)
    trained = train(model, images, labels, recipe, checkpoint=tmp_path / "checkpoint")
    assert not trained.training
    mean = (images / 255).mean((0, 2, 3))
    expected = mean * (1 - 0.99**24)  # every epoch sees every image once
    torch.testing.assert_close(trained.get_buffer("0.running_mean"), expected, rtol=0.05, atol=0)


class Stop(Exception):  # noqa: N818 - not an error
    pass


def test_interrupted_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Stopped after every epoch and started again: bit-identical."""
    images, labels = data()
    whole = train(build(), images, labels, RECIPE, checkpoint=tmp_path / "whole")

    def stop(_: Progress) -> None:
        raise Stop

    checkpoint = tmp_path / "stopped"
    for _ in range(RECIPE.epochs):
        with pytest.raises(Stop):
            train(build(), images, labels, RECIPE, checkpoint=checkpoint, report=stop)
    done: list[Progress] = []
    resumed = train(build(), images, labels, RECIPE, checkpoint=checkpoint, report=done.append)
    assert not done
    assert all(torch.equal(a, b) for a, b in zip(state(whole), state(resumed), strict=True))


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    images, labels = data(32)
    checkpoint = tmp_path / "checkpoint"
    train(build(), images, labels, Recipe(epochs=4, batch_size=16), checkpoint=checkpoint)
    with pytest.raises(ValueError, match="trained with another recipe"):
        train(build(), images, labels, Recipe(epochs=5, batch_size=16), checkpoint=checkpoint)


def test_a_damaged_checkpoint_or_one_of_another_model_is_refused(tmp_path: Path) -> None:
    images, labels = data(32)
    checkpoint = tmp_path / "checkpoint"
    recipe = Recipe(epochs=4, batch_size=16)
    train(build(), images, labels, recipe, checkpoint=checkpoint)
    with on_cpu():
        other = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 2))
    with pytest.raises(ModelError, match="belongs to another architecture"):
        train(other, images, labels, recipe, checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(StateError, match="truncated"):
        train(build(), images, labels, recipe, checkpoint=checkpoint)


def test_too_few_images_are_answered(tmp_path: Path) -> None:
    images, labels = data(32)
    with pytest.raises(ValueError, match=r"32 images in batches of 128 .* are 0 steps"):
        train(build(), images, labels, Recipe(), checkpoint=tmp_path / "checkpoint")


def test_augmented_images_are_flipped_and_moved_pieces() -> None:
    """Every result is found in the padded image or its mirror; both happen, and all shifts."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (200, 3, 6, 6), generator=generator).to(torch.uint8)
    found = augment(images, 2, generator)
    assert found.shape == images.shape
    seen = set()
    for image, result in zip(images, found, strict=True):
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
        places = [
            (flip, row, column)
            for flip, source in enumerate((padded, padded.flip(2)))
            for row in range(5)
            for column in range(5)
            if torch.equal(source[:, row : row + 6, column : column + 6], result)
        ]
        assert places
        seen.add(places[0])
    assert len(seen) > 40
    assert {flip for flip, _, _ in seen} == {0, 1}


def test_small_crops_are_pieces_of_the_padded_image() -> None:
    """A crop of 4 from 6 + 2 * 1 pixels has 5 x 5 places; all are drawn."""
    generator = torch.Generator().manual_seed(0)
    image = torch.arange(1, 37, dtype=torch.uint8).reshape(1, 1, 6, 6)
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))[0, 0]
    sources = (padded, padded.flip(1))
    places = {
        tuple(source[row : row + 4, column : column + 4].flatten().tolist())
        for source in sources
        for row in range(5)
        for column in range(5)
    }
    found = augment(image.expand(2000, -1, -1, -1), 1, generator, side=4)
    assert {tuple(crop.flatten().tolist()) for crop in found} == places


def test_the_last_quarter_of_the_epochs_sees_whole_images(tmp_path: Path) -> None:
    images, labels = data(32)
    sides: list[int] = []
    with on_cpu():
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
    model.register_forward_pre_hook(lambda _, inputs: sides.append(inputs[0].shape[-1]))
    recipe = dataclasses.replace(RECIPE, early_side=6)
    train(model, images, labels, recipe, checkpoint=tmp_path / "checkpoint")
    steps = len(images) // RECIPE.batch_size
    assert sides[: RECIPE.epochs * steps] == [6] * 3 * steps + [8] * steps


def test_the_final_statistics_are_those_of_augmented_images(tmp_path: Path) -> None:
    """Black borders and all: their mean is lower than that of the images as they are."""
    images, labels = data()
    recipe = dataclasses.replace(RECIPE, padding=4)
    with on_cpu():
        model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 2))
    trained = train(model, images, labels, recipe, checkpoint=tmp_path / "checkpoint")
    generator = torch.Generator().manual_seed(recipe.seed)
    views = [augment(batch, 4, generator) / 255 for batch in images.split(recipe.batch_size)]
    expected = torch.stack([view.mean((0, 2, 3)) for view in views]).mean(0)
    measured = trained.get_buffer("0.running_mean")
    torch.testing.assert_close(measured, expected)
    assert (measured < 0.9 * (images / 255).mean((0, 2, 3))).all()
