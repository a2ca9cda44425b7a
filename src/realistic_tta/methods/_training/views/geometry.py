"""Images moved and blurred: flip, affine map, Gaussian blur.

images: (image, channel, row, column). Used by cotta_view.py and contrast_views.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def flip(images: Tensor, mirrored: Tensor) -> Tensor:
    """Left and right exchanged in the images that mirrored, (image,), says."""
    return torch.where(by_image(mirrored, images), images.flip(3), images)


def by_image(values: Tensor, images: Tensor) -> Tensor:
    """One value an image, (image, 1, 1, 1), where the images are."""
    return values.to(images.device)[:, None, None, None]


def affine_points(
    height: int, width: int, angle: float, shift: tuple[float, float], scale: float
) -> tuple[Tensor, Tensor]:
    """Where each pixel of a turned, scaled, shifted picture comes from: rows, columns.

        source = turn(pixel - shift) / scale,  all measured in pixels from the picture's middle

    angle: in degrees, clockwise on the screen. shift: to the right, downwards, in pixels.
    """
    down = torch.arange(height, device="cpu", dtype=torch.float64)[:, None] - (height - 1) / 2
    right = torch.arange(width, device="cpu", dtype=torch.float64)[None, :] - (width - 1) / 2
    right, down = right - shift[0], down - shift[1]
    cosine, sine = (turn(math.radians(angle)) / scale for turn in (math.cos, math.sin))
    return cosine * down - sine * right, cosine * right + sine * down  # each (height, width)


def sample(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Images read at points between their pixels, bilinear; beyond the edge, the edge.

    down, right: (height, width), in pixels from the middle, the same for every image.
    """
    count, channels, rows, columns = images.shape
    grid = torch.stack([right * (2 / columns), down * (2 / rows)], dim=-1)  # torch: -1 to 1
    # As channels of one image, so that the points are worked out once, not for each image.
    stacked = images.reshape(1, count * channels, rows, columns)
    found = functional.grid_sample(
        stacked, grid[None].to(stacked), padding_mode="border", align_corners=False
    )
    return found.view(count, channels, *down.shape)


def gaussian_blur(images: Tensor, sigma: float | Tensor, reach: int) -> Tensor:
    """Gaussian blur over 2 reach + 1 rows and columns; smaller by reach on every side.

        weight of a neighbor = exp(-distance ** 2 / (2 sigma ** 2)), the weights summing to 1

    sigma: in pixels, one for all or (image, 1, 1, 1). Pad the images first to keep their size.
    """
    exp: Callable[[Any], Any] = torch.exp if isinstance(sigma, Tensor) else math.exp
    weights = [exp(-0.5 * (step / sigma) ** 2) for step in range(1, reach + 1)]
    middle = 1 / (1 + 2 * sum(weights))
    for dim in (2, 3):
        length = images.shape[dim] - 2 * reach
        blurred = images.narrow(dim, reach, length) * middle
        for step, weight in enumerate(weights, start=1):
            before = images.narrow(dim, reach - step, length)
            after = images.narrow(dim, reach + step, length)
            blurred += (before + after).mul_(weight * middle)
        images = blurred
    return images
