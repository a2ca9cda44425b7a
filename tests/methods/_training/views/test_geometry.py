"""Flip, affine map and blur against SciPy and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch.nn import functional

from realistic_tta.methods._training.views.geometry import (
    affine_points,
    flip,
    gaussian_blur,
    sample,
)

IMAGES = torch.rand(3, 2, 9, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_flip_mirrors_the_chosen_images_only() -> None:
    found = flip(IMAGES, torch.tensor([True, False, True]))
    for image, result, mirrored in zip(IMAGES, found, [True, False, True], strict=True):
        expected = image.tolist()
        if mirrored:
            expected = [[row[::-1] for row in plane] for plane in expected]
        assert result.tolist() == expected


@pytest.mark.parametrize(
    ("angle", "shift", "scale"),
    [(0, (0, 0), 1), (0, (2, -1), 1), (0, (0, 0), 1.1), (15, (0, 0), 1), (-7.5, (1, 3), 0.9)],
    ids=str,
)
def test_a_mapped_picture_is_scipys(angle: float, shift: tuple[float, float], scale: float) -> None:
    found = sample(IMAGES, *affine_points(9, 7, angle, shift, scale))
    turn = math.radians(angle)
    forward = scale * np.array(
        [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
    )
    backward = np.linalg.inv(forward)  # (row, column), turning clockwise on the screen
    middle = np.array([4.0, 3.0])
    offset = middle - backward @ (middle + np.array(shift[::-1]))
    for image, result in zip(IMAGES.flatten(0, 1), found.flatten(0, 1), strict=True):
        expected = ndimage.affine_transform(
            image.numpy(), backward, offset, order=1, mode="nearest"
        )
        np.testing.assert_allclose(result.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("sigma", [0.5, 1.3, 2.0])
def test_blur_is_scipys_gaussian(sigma: float) -> None:
    reach = math.ceil(3 * sigma)
    padded = functional.pad(IMAGES, [reach] * 4, mode="replicate")
    expected = ndimage.gaussian_filter(
        IMAGES.numpy(), sigma, mode="nearest", axes=(2, 3), radius=reach
    )
    np.testing.assert_allclose(gaussian_blur(padded, sigma, reach).numpy(), expected, atol=1e-12)


def test_a_sigma_for_each_image_is_each_image_by_itself() -> None:
    sigmas = torch.tensor([0.001, 0.5, 2.0], dtype=torch.float64)
    together = gaussian_blur(IMAGES, sigmas.view(3, 1, 1, 1), 2)
    alone = [gaussian_blur(IMAGES[i : i + 1], s, 2) for i, s in enumerate(sigmas.tolist())]
    torch.testing.assert_close(together, torch.cat(alone))
    assert torch.equal(together[0], IMAGES[0, :, 2:-2, 2:-2])  # too narrow to reach a neighbour
