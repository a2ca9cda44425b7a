from __future__ import annotations

import numpy as np
import pytest

from realistic_tta.data.bundled_images import FOLDER, first_of_each_class, load_bundled_images
from realistic_tta.data.cifar import load_cifar
from realistic_tta.data.registry import CIFAR10_CLASSES, data_folder


def test_the_images_are_balanced_and_mixed_as_the_test_set_is() -> None:
    bundled = load_bundled_images()
    assert bundled.images.shape == (2000, 32, 32, 3)
    assert np.bincount(bundled.labels).tolist() == [200] * 10
    assert bundled.classes == CIFAR10_CLASSES
    assert bundled.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]  # as published
    for part in np.split(bundled.labels[:1000], 10):
        assert len(np.unique(part)) == 10


def test_the_images_have_the_colors_of_cifar_10() -> None:
    """Mean and deviation as published for the training set, within sampling error."""
    pixels = load_bundled_images().images.reshape(-1, 3) / 255
    np.testing.assert_allclose(pixels.mean(0), [0.4914, 0.4822, 0.4465], atol=0.01)
    np.testing.assert_allclose(pixels.std(0), [0.2470, 0.2435, 0.2616], atol=0.01)


def test_the_images_are_those_of_the_test_set() -> None:
    if not (data_folder() / "cifar10").exists():
        pytest.skip("CIFAR-10 is not here; `rtta data get cifar10` fetches it")
    test, bundled = load_cifar("cifar10", "test"), load_bundled_images()
    chosen = first_of_each_class(test.labels, 200)
    np.testing.assert_array_equal(test.take(chosen), bundled.images)
    np.testing.assert_array_equal(test.labels[chosen], bundled.labels)


def test_the_package_stays_small() -> None:
    sizes = {file: file.stat().st_size for file in FOLDER.parent.rglob("*") if file.is_file()}
    assert sum(size for file, size in sizes.items() if file.is_relative_to(FOLDER)) < 5e6
    assert max(size for file, size in sizes.items() if file.suffix == ".safetensors") <= 3e6
    assert sum(sizes.values()) < 14e6  # pictures and weights do not shrink in a wheel; it is < 15
