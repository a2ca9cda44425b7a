"""Colors of images changed: brightness, contrast, saturation, hue, gamma, gray.

images: (image, 1 or 3, row, column), in [0, 1]; results stay there. A factor is one number for the
whole batch, or a tensor (image, 1, 1, 1) with one for each. The definitions are torchvision's.
Images of one channel have no color: gray, saturation and hue leave them as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gray(images: Tensor) -> Tensor:
    """The luminance, .2989 red + .587 green + .114 blue: (image, 1, row, column)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return torch.mul(red, 0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def brightness(images: Tensor, factor: float | Tensor) -> Tensor:
    """Scaled: factor * images; 0 is black, 1 changes nothing."""
    return (images * factor).clamp_(0, 1)


def contrast(images: Tensor, factor: float | Tensor) -> Tensor:
    """Blended with a flat gray: factor * images + (1 - factor) * mean of each image's gray."""
    mean = gray(images).mean(dim=(1, 2, 3), keepdim=True)  # (image, 1, 1, 1)
    return (images * factor).add_((1 - factor) * mean).clamp_(0, 1)


def saturation(images: Tensor, factor: float | Tensor) -> Tensor:
    """Blended with its gray: factor * images + (1 - factor) * gray; 0 is gray."""
    if images.shape[1] == 1:
        return images
    return (images * factor).add_((1 - factor) * gray(images)).clamp_(0, 1)


def gamma(images: Tensor, exponent: float | Tensor) -> Tensor:
    """Raised to a power: images ** exponent; zero is raised to 1e-8 first, as in CoTTA."""
    return images.clamp(1e-8, 1).pow_(exponent)


def hue(images: Tensor, shift: float | Tensor) -> Tensor:
    """The hue turned by a fraction of the color circle; brightness and saturation (HSV) stay.

        color = high - (high - low) * clamp(min(k, 4 - k), 0, 1),  k = (6 * hue + n) mod 6
        n = 5 for red, 3 for green, 1 for blue; high and low: the largest and smallest color

    >>> red = torch.tensor([1.0, 0.0, 0.0], device="cpu").view(1, 3, 1, 1)
    >>> hue(red, 1 / 3).flatten().tolist()  # green
    [0.0, 1.0, 0.0]
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)  # each (image, 1, row, column)
    high = torch.maximum(torch.maximum(red, green), blue)
    spread = high - torch.minimum(torch.minimum(red, green), blue)
    turned = _sixths(red, green, blue, high, spread) + 6 * shift
    place = turned.remainder_(6)  # on the color circle, in sixths
    n = place.new_tensor([5, 3, 1]).view(1, 3, 1, 1)
    return high - spread * _distance(place, n)  # (image, 3, row, column)


def _sixths(red: Tensor, green: Tensor, blue: Tensor, high: Tensor, spread: Tensor) -> Tensor:
    """The hue, in sixths of the circle from red: 2 is green, 4 blue; 0 where there is none."""
    divisor = torch.where(spread == 0, 1, spread)
    from_blue = (red - green).div_(divisor).add_(4)
    from_green = (blue - red).div_(divisor).add_(2)
    from_red = (green - blue).div_(divisor)
    others = torch.where(high == green, from_green, from_blue)
    return torch.where(high == red, from_red, others)


def _distance(place: Tensor, n: Tensor) -> Tensor:
    """clamp(min(k, 4 - k), 0, 1) with k = (place + n) mod 6: 2 - |k - 2| is that minimum."""
    k = place + n
    k -= 6 * (k >= 6)  # place is below 6 and n below 6
    return k.sub_(2).abs_().neg_().add_(2).clamp_(0, 1)
