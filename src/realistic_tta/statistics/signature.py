"""What kind of image this is, told from what reaches the first layer: its signature.

Noise, blur or a dark lens leave their mark on every part of an image; what is in the picture
differs from part to part. So what the parts of one image differ by is content, and what images
differ by beyond that is their kind. Used by normalization/course.py and domain_statistics.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .image_moments import Units

_FLOOR = 0.01  # of a variance, in units of the source's: what is below counts as none
FEATURES = 3  # of each channel


def signature(values: Tensor) -> Tensor:
    """Three numbers a channel: (image, 3 * channel).

        mean, log(variance), log(mean square of the difference along every axis)

    The last is what changes from each position to the next: much of it is noise, little is blur.
    values: in the source's units, (image, channel, *positions), two or more along every axis.

    >>> flat = signature(torch.zeros(1, 1, 2, 2, device="cpu"))
    >>> [round(each, 2) for each in flat[0].tolist()]
    [0.0, -4.61, -4.61]
    """
    inner = tuple(range(2, values.ndim))
    changes = values
    for axis in inner:
        changes = changes.diff(dim=axis)
    variance, mean = torch.var_mean(values, dim=inner, correction=0)
    square = changes.square().mean(dim=inner)
    return torch.cat((mean, (variance + _FLOOR).log(), (square + _FLOOR).log()), dim=1)


def signatures(
    inputs: Tensor, units: Units, channels: slice = slice(None)
) -> tuple[Tensor, Tensor]:
    """Of whole images, (image, 3 * channel), and of their parts, (image, part, 3 * channel).

    inputs: (image, channel, *positions), four or more along every axis. Parts are halves along each
    of the last two axes: quarters of a picture, halves of a sound. channels: those looked at.
    """
    shape = (-1, *(1 for _ in inputs.shape[2:]))
    mean, deviation = (each[channels].view(shape) for each in (units.source.mean, units.deviation))
    values = (inputs[:, channels].to(deviation.dtype) - mean) / deviation
    parts = [values]
    for axis in range(max(2, values.ndim - 2), values.ndim):
        parts = [half for part in parts for half in part.tensor_split(2, dim=axis)]
    return signature(values), torch.stack([signature(part) for part in parts], dim=1)


def has_signature(inputs: Tensor) -> bool:
    """Whether images have parts: four positions or more along every axis."""
    return inputs.ndim > 2 and min(inputs.shape[2:]) >= 4
