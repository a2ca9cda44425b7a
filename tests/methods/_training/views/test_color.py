"""Colors against Python's colorsys, plain loops and torchvision."""

from __future__ import annotations

import colorsys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from realistic_tta.methods._training.views import color

IMAGES = torch.rand(4, 3, 6, 5, generator=torch.Generator().manual_seed(0))
IMAGES[0, :, 0, 0] = 0.4  # gray, black and white have no hue
IMAGES[0, :, 0, 1] = 0.0
IMAGES[0, :, 0, 2] = 1.0
IMAGES[0, :, 0, 3] = torch.tensor([0.7, 0.7, 0.1])  # two colors are the largest


@pytest.mark.parametrize("shift", [-0.5, -0.06, 0.0, 0.1, 0.9])
def test_hue_is_what_colorsys_makes_of_each_pixel(shift: float) -> None:
    found = color.hue(IMAGES, shift)
    for image, row, column in torch.cartesian_prod(*map(torch.arange, (4, 6, 5))).tolist():
        pixel = IMAGES[image, :, row, column].tolist()
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        expected = colorsys.hsv_to_rgb((h + shift) % 1, s, v)
        assert found[image, :, row, column].tolist() == pytest.approx(expected, abs=2e-6)


def test_contrast_moves_every_value_from_its_images_mean_luminance() -> None:
    found = color.contrast(IMAGES, 1.3)
    for image, result in zip(IMAGES.tolist(), found.tolist(), strict=True):
        red, green, blue = ([value for row in plane for value in row] for plane in image)
        luminance = [
            0.2989 * r + 0.587 * g + 0.114 * b for r, g, b in zip(red, green, blue, strict=True)
        ]
        mean = sum(luminance) / len(luminance)
        for plane, changed in zip(image, result, strict=True):
            values = [value for row in plane for value in row]
            expected = [min(max(1.3 * value - 0.3 * mean, 0), 1) for value in values]
            assert [value for row in changed for value in row] == pytest.approx(expected, abs=1e-6)


REFERENCES: dict[str, tuple[Callable[..., Tensor], str, float]] = {
    "brightness": (color.brightness, "adjust_brightness", 1.4),
    "darkness": (color.brightness, "adjust_brightness", 0.6),
    "contrast": (color.contrast, "adjust_contrast", 0.7),
    "saturation": (color.saturation, "adjust_saturation", 1.5),
    "paleness": (color.saturation, "adjust_saturation", 0.5),
    "hue": (color.hue, "adjust_hue", -0.1),
    "gamma": (color.gamma, "adjust_gamma", 0.7),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_change_is_torchvisions(name: str, channels: int) -> None:
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    ours, theirs, factor = REFERENCES[name]
    images = IMAGES[:, :channels]
    expected = getattr(functional, theirs)(images, factor)
    tolerance = 1e-5 if name == "gamma" else 2e-6  # 1e-8 in place of 0
    torch.testing.assert_close(ours(images, factor), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    "change", [color.brightness, color.contrast, color.saturation, color.hue, color.gamma]
)
def test_a_factor_for_each_image_is_each_image_by_itself(change: Callable[..., Tensor]) -> None:
    factors = torch.tensor([0.1, 0.7, 1.0, 1.3])
    together = change(IMAGES, factors.view(4, 1, 1, 1))
    alone = [change(IMAGES[i : i + 1], factor) for i, factor in enumerate(factors.tolist())]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "change", [color.brightness, color.contrast, color.saturation, color.hue, color.gamma]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_changes_leave_their_input_alone_and_keep_its_type(
    change: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    images = IMAGES.to(dtype)
    result = change(images, 1.2)
    assert torch.equal(images, IMAGES.to(dtype))
    assert result.dtype == dtype
    assert 0 <= result.min() <= result.max() <= 1
