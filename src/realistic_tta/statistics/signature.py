"""What kind of image this is, told from what reaches the first layer: its signature.

Noise, blur or a dark lens leave their mark on every part of an image; what is in the picture
differs from part to part. So what the parts of one image differ by is content, and what images
differ by beyond that is their kind. Used by normalization/course.py and domain_statistics.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .image_moments import Units

_FLOOR = 0.01  # of a variance, in units of the source's: what is below counts as none
FEATURES = 3  # of each channel


class Marks(NamedTuple):
    """Of some positions of a channel: mean, mean square, and mean square of what changes.

    The last is the difference along every axis: of each position from the next one. Much of it is
    noise, little is blur. All of one shape, (image, channel, part).
    """

    mean: Tensor
    square: Tensor
    change: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Marks:
        """values: (image, channel, part, *positions), two or more along every axis."""
        inner = tuple(range(3, values.ndim))
        changes = values
        for axis in inner:
            changes = changes.diff(dim=axis)
        return cls(values.mean(dim=inner), _mean_square(values), _mean_square(changes))

    def signature(self) -> Tensor:
        """Three numbers a channel, (image, part, 3 * channel): mean, and two logarithms.

            mean, log(variance), log(change)

        >>> flat = Marks.of(torch.zeros(1, 1, 1, 2, 2, device="cpu")).signature()
        >>> [round(each, 2) for each in flat[0, 0].tolist()]
        [0.0, -4.61, -4.61]
        """
        variance = (self.square - self.mean.square()).clamp_min(0)
        rest = torch.log(torch.cat((variance, self.change), dim=1) + _FLOOR)
        return torch.cat((self.mean, rest), dim=1).transpose(1, 2)


def _mean_square(values: Tensor) -> Tensor:
    """Over the positions. The norm, which is many times faster than a variance."""
    inner = tuple(range(3, values.ndim))
    norm: Tensor = torch.linalg.vector_norm(values, dim=inner)
    return norm.square() / values.shape[3:].numel()


def signatures(
    inputs: Tensor, units: Units, channels: slice = slice(None)
) -> tuple[Tensor, Tensor]:
    """Of whole images, (image, 3 * channel), and of their parts, (image, part, 3 * channel).

    inputs: (image, channel, *positions), four or more along every axis. Parts are halves along each
    of the last two axes: quarters of a picture, halves of a sound; what is left of an odd number is
    not looked at. A whole image has the mean of its parts' marks. channels: those looked at.
    """
    shape = (-1, *(1 for _ in inputs.shape[2:]))
    mean, deviation = units.source.mean[channels], units.deviation[channels]
    parts = [inputs[:, channels].to(mean.dtype) - mean.view(shape)]
    for axis in range(max(2, inputs.ndim - 2), inputs.ndim):
        half = inputs.shape[axis] // 2
        parts = [each.narrow(axis, place, half) for each in parts for place in (0, half)]
    found = Marks.of(torch.stack(parts, dim=2))
    scale = deviation[:, None]
    marks = Marks(found.mean / scale, found.square / scale**2, found.change / scale**2)
    whole = Marks(*(each.mean(dim=2, keepdim=True) for each in marks))
    return whole.signature()[:, 0], marks.signature()


def has_signature(inputs: Tensor) -> bool:
    """Whether images have parts: four positions or more along every axis."""
    return inputs.ndim > 2 and min(inputs.shape[2:]) >= 4
