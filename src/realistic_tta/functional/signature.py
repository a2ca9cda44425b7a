"""What kind of image this is, told from what reaches the first layer: its signature.

Noise, blur or a dark lens leave their mark on every part of an image; what is in the picture
differs from part to part. So what the parts of one image differ by is content, and what images
differ by beyond that is their kind. Used by normalization/course.py and domain_statistics.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .arrays import Array, as_tensor
from .image_moments import Units
from .kernel import marks_at_once, sight_at_once

_FLOOR = 0.01  # of a variance, in units of the source's: what is below counts as none
FEATURES = 3  # of each channel
_AT_ONCE = 2**17  # values that are looked at


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
        variance = torch.addcmul(self.square, self.mean, self.mean, value=-1)
        rest = torch.cat((variance, self.change), dim=1).clamp_min_(0).add_(_FLOOR).log_()
        return torch.cat((self.mean, rest), dim=1).transpose(1, 2)

    def with_whole(self) -> Marks:
        """With the mean of all parts as one more part, the first."""
        each = torch.stack(self)
        return Marks(*torch.cat((each.mean(dim=3, keepdim=True), each), dim=3).unbind())


def _mean_square(values: Tensor) -> Tensor:
    """Over the positions. The norm, which is many times faster than a variance."""
    inner = tuple(range(3, values.ndim))
    norm: Tensor = torch.linalg.vector_norm(values, dim=inner)
    return norm.square() / values.shape[3:].numel()


def signatures(inputs: Tensor, units: Units, every: int = 1) -> tuple[Tensor, Tensor]:
    """Of whole images, (image, 3 * channel), and of their parts, (image, part, 3 * channel).

    inputs: (image, channel, *positions), four or more along every axis. Parts are halves along each
    of the last two axes: quarters of a picture, halves of a sound; what is left of an odd number is
    not looked at. A whole image has the mean of its parts' marks. every: that many channels are
    one that is looked at.
    """
    scale = units.inverse_deviation[::every, None]
    found = _marks(inputs, units, every)
    square = scale * scale
    in_units = Marks(found.mean * scale, found.square * square, found.change * square)
    both = in_units.with_whole().signature()
    return both[:, 0], both[:, 1:]


def mean_signature(
    inputs: Tensor, units: Units, every: int, most: float
) -> tuple[Array, Array] | None:
    """The mean of whole images' signatures, and `scatter_of` their parts, by the C extension.

    most: what none of their numbers exceeds; nor does what is not a number. None if it cannot.
    """
    marks = marks_at_once(inputs, units.source.mean, every)
    if marks is None:
        return None
    return sight_at_once(marks, units.inverse_deviation, every, _FLOOR, most)


def _marks(inputs: Tensor, units: Units, every: int) -> Marks:
    """Of each part, about the source's mean."""
    at_once = marks_at_once(inputs, units.source.mean, every)
    if at_once is not None:
        return Marks(*as_tensor(at_once).unbind())
    centre = units.source.mean[::every]
    marks = [_marks_of(each[:, ::every], centre) for each in _a_few_at_once(inputs)]
    return marks[0] if len(marks) == 1 else Marks(*map(torch.cat, zip(*marks, strict=True)))


def _a_few_at_once(inputs: Tensor) -> Sequence[Tensor]:
    """So few images that what is made of them stays in a CPU's cache.

    To get memory for all of them from the system takes longer than all the rest.
    """
    if inputs.device.type != "cpu" or torch.compiler.is_compiling():
        return [inputs]
    return torch.split(inputs, max(1, _AT_ONCE // max(1, inputs[:1].numel())))


def _marks_of(inputs: Tensor, centre: Tensor) -> Marks:
    """Of each part of some images, about a centre, (channel,)."""
    parts = _halves(inputs.to(centre.dtype))
    values = parts.clone(memory_format=torch.contiguous_format)
    values -= centre.view(-1, *(1 for _ in parts.shape[2:]))
    return Marks.of(values.flatten(2, 1 + min(2, inputs.ndim - 2)))


def _halves(inputs: Tensor) -> Tensor:
    """Along each of the last two axes: (image, channel, 2, 2, *positions); a view."""
    axes = range(max(2, inputs.ndim - 2), inputs.ndim)
    for axis in axes:
        half = inputs.shape[axis] // 2
        inputs = inputs.unfold(axis, half, half)
    others = list(range(2, axes.start))  # axes that are not halved come after those of the parts
    return inputs.movedim(others, [place + len(axes) for place in others])


def has_signature(inputs: Tensor) -> bool:
    """Whether images have parts: four positions or more along every axis."""
    return inputs.ndim > 2 and min(inputs.shape[2:]) >= 4
