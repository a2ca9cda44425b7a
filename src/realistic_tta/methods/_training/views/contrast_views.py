"""AdaContrast's views of a batch (Chen 2022), drawn for each image: weak and strong.

The published crop takes a random part of images larger than the model's; here they come in the
model's own size, so there is nothing to crop. Used by methods/adacontrast.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .color import brightness, contrast, gray, hue, saturation
from .draws import chosen, orders, uniform
from .geometry import by_image, flip, gaussian_blur

REACH = 6  # of the blur: three times the largest sigma
JITTER: tuple[tuple[Callable[[Tensor, Tensor], Tensor], float, float], ...] = (
    (brightness, 0.6, 1.4),
    (contrast, 0.6, 1.4),
    (saturation, 0.6, 1.4),
    (hue, -0.1, 0.1),
)


def weak_view(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip .5."""
    return flip(images, chosen(0.5, generator, len(images)))


def strong_view(images: Tensor, generator: torch.Generator) -> Tensor:
    """Color jitter .8, gray .2, blur .5, flip .5. images: (image, 1 or 3, row, column)."""
    count = len(images)
    precise = images.float() if images.dtype.itemsize < torch.float32.itemsize else images
    view = jitter(precise.clamp(0, 1), chosen(0.8, generator, count), generator)
    view = torch.where(by_image(chosen(0.2, generator, count), view), gray(view), view)
    blurred, sigmas = chosen(0.5, generator, count), uniform(0.1, 2, generator, count)
    view = apply(view, blurred.tolist(), blur, sigmas)
    return flip(view, chosen(0.5, generator, count)).to(images.dtype)


def jitter(images: Tensor, wanted: Tensor, generator: torch.Generator) -> Tensor:
    """Brightness, contrast, saturation and hue, each image in its own order and strength."""
    count = len(images)
    order = orders(len(JITTER), generator, count).masked_fill_(~wanted[:, None], -1)
    factors = [uniform(low, high, generator, count) for _, low, high in JITTER]
    for now in order.T.tolist():  # which change each image is due, -1 for none
        for place, (change, _, _) in enumerate(JITTER):
            images = apply(images, [each == place for each in now], change, factors[place])
    return images


def blur(images: Tensor, sigmas: Tensor) -> Tensor:
    """Gaussian, the edge continued outwards. sigmas: (image, 1, 1, 1)."""
    padded = functional.pad(images, [REACH] * 4, mode="replicate")
    return gaussian_blur(padded, sigmas, REACH)


def apply(
    images: Tensor,
    here: Sequence[bool],
    change: Callable[[Tensor, Tensor], Tensor],
    strengths: Tensor,
) -> Tensor:
    """Changes the images that here says, each by its own of the strengths, (image,)."""
    if not any(here):
        return images
    if all(here):
        return change(images, by_image(strengths, images).to(images))
    places = torch.tensor(here, device=strengths.device).nonzero().flatten()
    part = images[places.to(images.device)]
    return images.index_copy(
        0, places.to(images.device), change(part, by_image(strengths[places], part).to(part))
    )
