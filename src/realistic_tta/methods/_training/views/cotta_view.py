"""CoTTA's view of a batch (Wang 2022): colors, a small turn and shift, blur, flip and noise.

One draw for the whole batch, but for the noise. methods/cotta.py averages the teacher over 32.

The published recipe pads the images by half their side with their edge, maps the large picture,
blurs it and cuts the middle out. Here only what is left in the end is computed: an edge-padded
picture is the picture read with its coordinates held at the edge, so no padding is made; rows and
columns outside the middle are mapped only within reach of the blur.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from .color import brightness, contrast, gamma, hue, saturation
from .draws import normal, uniform
from .geometry import affine_points, gaussian_blur, sample

REACH = 2  # of the blur: 5 x 5
NOISE = 0.005
COLORS: tuple[tuple[Callable[[Tensor, float], Tensor], float, float], ...] = (
    (brightness, 0.6, 1.4),
    (contrast, 0.7, 1.3),
    (saturation, 0.5, 1.5),
    (hue, -0.06, 0.06),
    (gamma, 0.7, 1.3),
)


@dataclass(frozen=True)
class CottaView:
    """One draw: what is done to every image of a batch.

    factors: of COLORS, in their order. order: in which they are applied.
    angle: in degrees. shift: right and down, in fractions of the padded sides. sigma: of the blur.
    """

    factors: tuple[float, ...]
    order: tuple[int, ...]
    angle: float
    shift: tuple[float, float]
    scale: float
    sigma: float
    mirrored: bool

    @classmethod
    def draw(cls, generator: torch.Generator) -> Self:
        """A view in the published ranges."""
        drawn: list[float] = uniform(0, 1, generator, 16).tolist()  # in one call: it is quicker
        units = iter(drawn)

        def one(low: float, high: float) -> float:
            return low + (high - low) * next(units)

        places = [next(units) for _ in COLORS]
        return cls(
            factors=tuple(one(low, high) for _, low, high in COLORS),
            order=tuple(sorted(range(len(COLORS)), key=places.__getitem__)),
            angle=one(-15, 15),
            shift=(one(-1 / 16, 1 / 16), one(-1 / 16, 1 / 16)),
            scale=one(0.9, 1.1),
            sigma=one(0.001, 0.5),
            mirrored=next(units) < 0.5,
        )

    def of(self, images: Tensor) -> Tensor:
        """The images seen so, without the noise."""
        seen = images.clamp(0, 1)
        for place in self.order:
            change, _, _ = COLORS[place]
            seen = change(seen, self.factors[place])
        return gaussian_blur(self._moved(seen), self.sigma, REACH)

    def _moved(self, images: Tensor) -> Tensor:
        """The middle of the padded, mapped picture, and REACH pixels around it."""
        rows, columns = images.shape[2:]
        paddings = [max(side // 2, REACH) for side in (rows, columns)]
        height, width = (
            side + 2 * padding for side, padding in zip((rows, columns), paddings, strict=True)
        )
        shift = (round(self.shift[0] * width), round(self.shift[1] * height))
        down, right = affine_points(
            rows + 2 * REACH, columns + 2 * REACH, self.angle, shift, self.scale
        )
        if self.mirrored:  # the blur is the same both ways, so the points may be exchanged first
            down, right = down.flip(1), right.flip(1)
        inside = _inside(down, height) * _inside(right, width)
        return _keep(sample(images, down, right), inside)


def cotta_view(images: Tensor, generator: torch.Generator) -> Tensor:
    """A new view of the batch. images: (image, 1 or 3, row, column), in [0, 1]."""
    precise = images.float() if images.dtype.itemsize < torch.float32.itemsize else images
    view = CottaView.draw(generator).of(precise)
    noise = normal(view, NOISE, generator)
    return (view + noise).clamp_(0, 1).to(images.dtype)


def _inside(points: Tensor, side: int) -> Tensor:
    """How far a point lies inside a picture with this side: 1 inside, 0 a pixel beyond it."""
    return ((side + 1) / 2 - points.abs()).clamp_(0, 1)


def _keep(images: Tensor, inside: Tensor) -> Tensor:
    """Black outside the padded picture; only small images are turned that far."""
    return images if bool((inside == 1).all()) else images * inside.to(images)
