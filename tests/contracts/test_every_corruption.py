"""What every corruption promises, at both sizes."""

from __future__ import annotations

import numpy as np
import pytest
from data.pictures import flat, pictures

from realistic_tta import OptionError
from realistic_tta.data.corruptions import FUNCTIONS, corrupt
from realistic_tta.data.registry import CLEAN, CORRUPTIONS, EXTRA_CORRUPTIONS

ALL = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)

# Whose published parameters do not grow with the severity at every step: they trade one kind of
# damage for another (glass: rounds for blur; elastic: bending for tearing), or turn (saturate).
NOT_MONOTONE = {"glass_blur", "frost", "elastic_transform", "saturate", "spatter"}


def test_every_published_name_has_its_function() -> None:
    assert tuple(FUNCTIONS) == (*ALL, CLEAN)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("side", [32, 224])
def test_same_size_same_type_another_image(name: str, severity: int, side: int) -> None:
    images = pictures(2, side)
    before = images.copy()
    found = corrupt(images, name, severity, np.random.default_rng(0))
    assert found.dtype == np.uint8
    assert found.shape == images.shape
    assert (found != images).any()
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("side", [32, 224])
def test_clean_images_are_a_copy(severity: int, side: int) -> None:
    images = pictures(2, side)
    found = corrupt(images, CLEAN, severity, np.random.default_rng(0))
    np.testing.assert_array_equal(found, images)
    assert found is not images


@pytest.mark.parametrize("name", ALL)
def test_the_generator_decides(name: str) -> None:
    images = pictures(4)
    one, same, other = (corrupt(images, name, 5, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    random = name not in {
        "defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression",
        "gaussian_blur", "saturate",
    }  # fmt: skip
    assert (one != other).any() == random


@pytest.mark.parametrize("name", [name for name in ALL if name not in NOT_MONOTONE])
def test_a_higher_severity_does_more_damage(name: str) -> None:
    images = pictures(64)
    damage = [
        np.mean(
            (corrupt(images, name, severity, np.random.default_rng(0)) - images.astype(float)) ** 2
        )
        for severity in range(1, 6)
    ]
    assert damage == sorted(damage)
    assert damage[4] > 1.5 * damage[0]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("level", [0, 255])
def test_black_and_white_images_are_taken(name: str, level: int) -> None:
    found = corrupt(flat(level, 2), name, 5, np.random.default_rng(0))
    assert found.shape == (2, 32, 32, 3)


@pytest.mark.parametrize(
    ("images", "name", "severity", "words"),
    [
        (pictures(1), "gausian_noise", 1, 'did you mean "gaussian_noise"'),
        (pictures(1), "fog", 0, "severity is 0; expected 1, 2, 3, 4 or 5"),
        (pictures(1) / 255, "fog", 1, "images are float64.*expected bytes"),
        (pictures(1)[0], "fog", 1, r"shape \(32, 32, 3\); expected bytes"),
        (pictures(1, 64), "fog", 1, "64 x 64 pixels; the published .* of 32 or 224"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_answered(
    images: np.ndarray, name: str, severity: int, words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        corrupt(images, name, severity, np.random.default_rng(0))
