"""AugMix (Hendrycks 2020): an image mixed with chains of gentle operations on itself.

    mixed = (1 - m) image + m * sum of w_i chain_i(image)     m ~ Beta(1, 1), w ~ Dirichlet(1, 1, 1)

Each of three chains applies one to three of nine operations, none of them a test corruption: no
noise, blur, brightness, contrast, colour or compression. Whole batches at once, on tensors.
Used by training.py; without the consistency loss of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

CHAINS = 3
MOST_STEPS = 3
SEVERITY = 3.0  # of 10, as for CIFAR in the paper


def augmix(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image with its own mixture. images: (image, 3, row, column), bytes; returns floats."""
    shares = _dirichlet(len(images), CHAINS, generator)  # (image, chain)
    originals = images.float()
    chains = torch.zeros_like(originals)
    for number in range(CHAINS):
        chains += shares[:, number, None, None, None] * _chain(images, generator).float()
    blend = torch.rand(len(images), 1, 1, 1, generator=generator)  # Beta(1, 1)
    return torch.lerp(originals, chains, blend)


def _chain(images: Tensor, generator: torch.Generator) -> Tensor:
    """One to three operations an image, each of random strength."""
    steps = torch.randint(1, MOST_STEPS + 1, (len(images),), generator=generator)
    result = images.clone()
    for step in range(MOST_STEPS):
        chosen = torch.randint(len(OPERATIONS), (len(images),), generator=generator)
        chosen[steps <= step] = -1  # done
        levels = 0.1 + (SEVERITY - 0.1) * torch.rand(len(images), generator=generator)
        signs = torch.randint(2, (len(images),), generator=generator) * 2 - 1
        for number, operation in enumerate(OPERATIONS):
            here = chosen == number
            if here.any():
                result[here] = operation(result[here], levels[here], signs[here])
    return result


def _dirichlet(count: int, parts: int, generator: torch.Generator) -> Tensor:
    """Uniform over all ways to share one: exponential draws over their sum."""
    draws = -torch.log1p(-torch.rand(count, parts, generator=generator))
    return draws / draws.sum(dim=1, keepdim=True)


# The operations. images: (image, 3, row, column), bytes; levels: (image,), from 0.1 to 3 of 10;
# signs: (image,), -1 or 1.


def autocontrast(images: Tensor, _levels: Tensor, _signs: Tensor) -> Tensor:
    """Each colour stretched to the whole range."""
    low = images.amin(dim=(2, 3), keepdim=True).float()
    high = images.amax(dim=(2, 3), keepdim=True).float()
    flat = high <= low
    scale = 255 / torch.where(flat, 255.0, high - low)
    stretched = (images.float() * scale - low * scale).floor().clamp(0, 255)
    return torch.where(flat, images, stretched.to(torch.uint8))


def equalize(images: Tensor, _levels: Tensor, _signs: Tensor) -> Tensor:
    """Each colour's values made equally frequent, as Pillow's equalize."""
    planes = images.flatten(2).flatten(0, 1).long()  # (image and colour, pixel)
    counts = torch.zeros(len(planes), 256, dtype=torch.int64)
    counts.scatter_add_(1, planes, torch.ones_like(planes))
    brightest = counts.gather(1, planes.amax(dim=1, keepdim=True))
    step = (planes.shape[1] - brightest) // 255  # (image and colour, 1)
    below = counts.cumsum(dim=1) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256).expand_as(table))
    return table.gather(1, planes).view(images.shape).to(torch.uint8)


def posterize(images: Tensor, levels: Tensor, _signs: Tensor) -> Tensor:
    """All but the 4 - level highest bits cleared."""
    bits = 4 - (levels * 4 / 10).int()
    mask = (255 << (8 - bits)) & 255
    return images & mask.to(torch.uint8)[:, None, None, None]


def solarize(images: Tensor, levels: Tensor, _signs: Tensor) -> Tensor:
    """Values from 256 - level upwards turned to their negative."""
    threshold = (256 - (levels * 256 / 10).int())[:, None, None, None]
    return torch.where(images < threshold, images, 255 - images)


def rotate(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """By up to 9 degrees (30 at level 10) about the middle."""
    angles = signs * (levels * 30 / 10).int() * math.pi / 180
    cosines, sines = angles.cos(), angles.sin()
    return _affine(images, cosines, -sines, sines, cosines)


def shear_x(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Rows slid against each other."""
    one, none = torch.ones_like(levels), torch.zeros_like(levels)
    return _affine(images, one, signs * levels * 0.3 / 10, none, one)


def shear_y(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Columns slid against each other."""
    one, none = torch.ones_like(levels), torch.zeros_like(levels)
    return _affine(images, one, none, signs * levels * 0.3 / 10, one)


def translate_x(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Moved sideways by whole pixels, up to a tenth of the side."""
    one, none = torch.ones_like(levels), torch.zeros_like(levels)
    moves = signs * (levels * (images.shape[3] / 3) / 10).int() * 2 / images.shape[3]
    return _affine(images, one, none, none, one, across=moves)


def translate_y(images: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """Moved up or down by whole pixels, up to a tenth of the side."""
    one, none = torch.ones_like(levels), torch.zeros_like(levels)
    moves = signs * (levels * (images.shape[2] / 3) / 10).int() * 2 / images.shape[2]
    return _affine(images, one, none, none, one, down=moves)


def _affine(
    images: Tensor,
    xx: Tensor,
    xy: Tensor,
    yx: Tensor,
    yy: Tensor,
    *,
    across: Tensor | None = None,
    down: Tensor | None = None,
) -> Tensor:
    """Every image under its own affine map about the middle; bilinear, black outside."""
    none = torch.zeros_like(xx)
    rows = [xx, xy, none if across is None else across, yx, yy, none if down is None else down]
    maps = torch.stack([row.float() for row in rows], dim=1).view(-1, 2, 3)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
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
