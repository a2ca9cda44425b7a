"""AugMix (Hendrycks 2020): mixes an image with augmented versions of itself.

    mixed = (1 - m) image + m * sum of w_i chain_i(image)     m ~ Beta(1, 1), w ~ Dirichlet(1, 1, 1)

Each of three chains applies one to three of nine operations. None is a test corruption: no noise,
blur, brightness, contrast, color or compression. Batches are processed as tensors. The consistency
loss of the paper is not included.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

CHAINS = 3
MAX_STEPS = 3
SEVERITY = 3.0  # of 10, as for CIFAR in the paper


def augmix(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mix each image with its own chains.

    images: (image, 3, row, column) uint8. Returns floats from 0 to 255.
    """
    weights = _dirichlet(len(images), CHAINS, generator)  # (image, chain)
    originals = images.float()
    chains = torch.zeros_like(originals)
    for number in range(CHAINS):
        chains += weights[:, number, None, None, None] * _chain(images, generator).float()
    blend = torch.rand(len(images), 1, 1, 1, generator=generator)  # Beta(1, 1)
    return torch.lerp(originals, chains, blend)


def _chain(images: Tensor, generator: torch.Generator) -> Tensor:
    """Apply one to three operations of random strength per image."""
    steps = torch.randint(1, MAX_STEPS + 1, (len(images),), generator=generator)
    result = images.clone()
    for step in range(MAX_STEPS):
        chosen = torch.randint(len(OPERATIONS), (len(images),), generator=generator)
        chosen[steps <= step] = -1  # this image has no step left
        levels = 0.1 + (SEVERITY - 0.1) * torch.rand(len(images), generator=generator)
        signs = torch.randint(2, (len(images),), generator=generator) * 2 - 1
        for number, operation in enumerate(OPERATIONS):
            here = chosen == number
            if here.any():
                result[here] = operation(result[here], levels[here], signs[here])
    return result


def _dirichlet(count: int, parts: int, generator: torch.Generator) -> Tensor:
    """Draw weights that sum to one from Dirichlet(1, ..., 1)."""
    draws = -torch.log1p(-torch.rand(count, parts, generator=generator))
    return draws / draws.sum(dim=1, keepdim=True)


# The operations. images: (image, 3, row, column) uint8; levels: (image,), 0.1 to 3 of 10;
# signs: (image,), -1 or 1.


def autocontrast(images: Tensor, _levels: Tensor, _signs: Tensor) -> Tensor:
    """Stretch each color channel to the full range."""
    low = images.amin(dim=(2, 3), keepdim=True).float()
    high = images.amax(dim=(2, 3), keepdim=True).float()
    flat = high <= low
    scale = 255 / torch.where(flat, 255.0, high - low)
    stretched = (images.float() * scale - low * scale).floor().clamp(0, 255)
    return torch.where(flat, images, stretched.to(torch.uint8))


def equalize(images: Tensor, _levels: Tensor, _signs: Tensor) -> Tensor:
    """Equalize the histogram of each color channel, as Pillow does."""
    planes = images.flatten(2).flatten(0, 1).long()  # (image and color, pixel)
    counts = torch.zeros(len(planes), 256, dtype=torch.int64)
    counts.scatter_add_(1, planes, torch.ones_like(planes))
    brightest = counts.gather(1, planes.amax(dim=1, keepdim=True))
    step = (planes.shape[1] - brightest) // 255  # (image and color, 1)
    below = counts.cumsum(dim=1) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256).expand_as(table))
    return table.gather(1, planes).view(images.shape).to(torch.uint8)


def posterize(images: Tensor, levels: Tensor, _signs: Tensor) -> Tensor:
    """Keep only the 4 - level highest bits."""
    bits = 4 - (levels * 4 / 10).int()
    mask = (255 << (8 - bits)) & 255
    return images & mask.to(torch.uint8)[:, None, None, None]


def solarize(images: Tensor, levels: Tensor, _signs: Tensor) -> Tensor:
    """Invert values from 256 - level upwards."""
    threshold = (256 - (levels * 256 / 10).int())[:, None, None, None]
    return torch.where(images < threshold, images, 255 - images)


def rotate(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Rotate by up to 9 degrees (30 at level 10) about the center."""
    angles = signs * (levels * 30 / 10).int() * math.pi / 180
    return _affine(images, xx=angles.cos(), xy=-angles.sin(), yx=angles.sin(), yy=angles.cos())


def shear_x(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Shear horizontally."""
    return _affine(images, xy=signs * levels * 0.3 / 10)


def shear_y(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Shear vertically."""
    return _affine(images, yx=signs * levels * 0.3 / 10)


def translate_x(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Translate horizontally by whole pixels, up to a tenth of the side."""
    return _affine(images, x=_whole_pixels(levels, signs, images.shape[3]))


def translate_y(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Translate vertically by whole pixels, up to a tenth of the side."""
    return _affine(images, y=_whole_pixels(levels, signs, images.shape[2]))


def _whole_pixels(levels: Tensor, signs: Tensor, side: int) -> Tensor:
    """Return shifts in units of half the side."""
    return signs * (levels * (side / 3) / 10).int() * 2 / side


def _affine(images: Tensor, **entries: Tensor) -> Tensor:
    """Apply one affine map per image about the center; bilinear, black outside.

    entries: (image,), of the matrix [[xx, xy, x], [yx, yy, y]]; by default the identity.
    """
    maps = torch.eye(2, 3).repeat(len(images), 1, 1).flatten(1)  # (image, entry)
    for name, values in entries.items():
        maps[:, ("xx", "xy", "x", "yx", "yy", "y").index(name)] = values.float()
    grid = functional.affine_grid(maps.view(-1, 2, 3), list(images.shape), align_corners=False)
    moved = functional.grid_sample(images.float(), grid, align_corners=False)
    return moved.round().to(torch.uint8)


OPERATIONS: tuple[Callable[[Tensor, Tensor, Tensor], Tensor], ...] = (
    autocontrast,
    equalize,
    posterize,
    rotate,
    solarize,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)
