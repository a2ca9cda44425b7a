from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from realistic_tta.models import augmix as module
from realistic_tta.models.augmix import OPERATIONS, augmix


def pictures(count: int = 12, side: int = 32) -> Tensor:
    """Smooth random images."""
    generator = torch.Generator().manual_seed(0)
    small = torch.rand(count, 3, 6, 6, generator=generator) * 200 + 20
    large = torch.nn.functional.interpolate(small, side, mode="bilinear")
    return large.to(torch.uint8)


def pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def levels(count: int, value: float) -> Tensor:
    return torch.full((count,), value)


ONE = torch.ones(12, dtype=torch.int64)


def test_equalize_and_posterize_and_solarize_are_pillows() -> None:
    images = pictures()
    pairs: dict[str, tuple[Tensor, Callable[[Image.Image], Image.Image]]] = {
        "equalize": (module.equalize(images, levels(12, 3), ONE), ImageOps.equalize),
        "posterize": (
            module.posterize(images, levels(12, 2.6), ONE),
            lambda image: ImageOps.posterize(image, 4 - 1),
        ),
        "solarize": (
            module.solarize(images, levels(12, 3), ONE),
            lambda image: ImageOps.solarize(image, 256 - 76),
        ),
    }
    for name, (found, reference) in pairs.items():
        for image, result in zip(images, found, strict=True):
            expected = np.asarray(reference(pillow(image)))
            np.testing.assert_array_equal(result.permute(1, 2, 0).numpy(), expected, err_msg=name)


def test_autocontrast_is_pillows_within_a_level() -> None:
    images = pictures()
    found = module.autocontrast(images, levels(12, 3), ONE)
    for image, result in zip(images, found, strict=True):
        expected = np.asarray(ImageOps.autocontrast(pillow(image))).astype(int)
        assert np.abs(result.permute(1, 2, 0).numpy() - expected).max() <= 1
    even = torch.full((2, 3, 4, 4), 77, dtype=torch.uint8)
    assert torch.equal(module.autocontrast(even, levels(2, 1), ONE[:2]), even)
    assert torch.equal(module.equalize(even, levels(2, 1), ONE[:2]), even)


def test_translations_move_by_whole_pixels() -> None:
    """Level 3 of a third of 32 pixels: 3 pixels, the room left black."""
    images = pictures()
    right = module.translate_x(images, levels(12, 3), -ONE)
    assert torch.equal(right[..., 3:], images[..., :-3])
    assert (right[..., :3] == 0).all()
    down = module.translate_y(images, levels(12, 3), -ONE)
    assert torch.equal(down[:, :, 3:], images[:, :, :-3])


@pytest.mark.parametrize("name", ["rotate", "shear_x", "shear_y"])
def test_turning_and_shearing_keep_the_middle_and_undo_themselves(name: str) -> None:
    images = pictures().float().to(torch.uint8)
    operation = getattr(module, name)
    there = operation(images, levels(12, 2), ONE)
    assert (there != images).any()
    back = operation(there, levels(12, 2), -ONE).float()
    inner = (slice(None), slice(None), slice(8, 24), slice(8, 24))
    assert (back[inner] - images[inner].float()).abs().mean() < 3


def test_a_mixture_is_the_images_own_and_stays_in_range() -> None:
    images = pictures(40)
    found = augmix(images, torch.Generator().manual_seed(1))
    assert found.shape == images.shape
    assert found.min() >= 0
    assert found.max() <= 255.01
    changed = (found - images.float()).abs().mean(dim=(1, 2, 3))
    assert (changed > 0).all()
    assert changed.median() < 40
    again = augmix(images, torch.Generator().manual_seed(1))
    assert torch.equal(found, again)


def test_shares_of_the_chains_sum_to_one_and_are_uniform() -> None:
    shares = module._dirichlet(20_000, 3, torch.Generator().manual_seed(0))
    torch.testing.assert_close(shares.sum(1), torch.ones(20_000))
    torch.testing.assert_close(shares.mean(0), torch.full((3,), 1 / 3), atol=0.01, rtol=0)
    assert shares.var(0).tolist() == pytest.approx([1 / 18] * 3, rel=0.05)  # Dirichlet(1, 1, 1)


def test_there_are_nine_operations() -> None:
    assert len(OPERATIONS) == len(set(OPERATIONS)) == 9
