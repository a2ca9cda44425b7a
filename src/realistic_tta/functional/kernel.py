"""A layer's arithmetic in one go, where the package was built with its C extension (folder c).

A few hundred numbers are worked out sooner than the thirty operations for them have begun. Whoever
calls these functions has the same formulas in Python, and takes them where the answer is None: on a
device, in a graph of torch.compile, in other types than float32, and where there was no C compiler.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arrays import Array, at_hand, space
from .channel_statistics import ChannelStatistics

kernel: Any
try:
    from . import _kernel as kernel
except ImportError:  # pure Python, then
    kernel = None

_SMALL = 2**17  # values that one thread adds up sooner than several come together


class Room:
    """Where what is found of a layer is written, again with every batch: to ask for it costs more.

    mean, variance: the same memory as target, (channel,). batch: (1, 2 * channel).
    """

    def __init__(self, channels: int) -> None:
        with torch.inference_mode(mode=False):
            both = torch.zeros(4, channels, dtype=torch.float32, device="cpu")
        self.target = ChannelStatistics(*both[:2].unbind())
        self.mean, self.variance = map(at_hand, self.target)
        self.batch: Array = at_hand(both[2:].view(1, -1))
        self.moments = self.batch[:0]

    def for_images(self, images: int) -> Array:
        """For the moments of so many, (image, 2 * channel)."""
        if len(self.moments) != images:
            self.moments = space(self.batch).empty((images, self.batch.size), self.batch.dtype)
        return self.moments

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is a room of its own, whose arrays are its tensors' again."""
        return Room, (len(self.target.mean),)


class Found(NamedTuple):
    """moments: of each image, (image, 2 * channel). batch: their mean. The rest as in a rule."""

    moments: Array
    batch: Array
    spread: float
    source_weight: float
    target: ChannelStatistics


def takes(inputs: Tensor, numbers: Array) -> bool:
    """Whether inputs of a layer, and numbers to go with them, are for the extension."""
    if kernel is None or isinstance(numbers, Tensor) or torch.compiler.is_compiling():
        return False
    return inputs.dtype is torch.float32 and inputs.is_cpu


def _is_shared(inputs: Tensor) -> bool:
    """Whether torch's threads would share the work."""
    return inputs.numel() > _SMALL and torch.get_num_threads() > 1


def moments_at_once(
    inputs: Tensor, constant: Array, slope: Array, square_slope: Array, shift: Tensor | None
) -> Array | None:
    """image_moments.py: both moments of each image, (image, 2 * channel), by what `Units` holds.

    None, too, where torch's threads would share the work.
    """
    if not takes(inputs, slope) or _is_shared(inputs):
        return None
    out = space(slope).empty((inputs.shape[0], slope.size), slope.dtype)
    about = None if shift is None else at_hand(shift)
    done = kernel.image_moments(inputs.numpy(), constant, slope, square_slope, out, about)
    return out if done else None


def layer_at_once(
    inputs: Tensor, looks: tuple[Any, ...], numbers: tuple[Any, ...], room: Room
) -> Found | None:
    """normalization/remembered_statistics.py: what a rule finds, from what reaches its layer.

    looks: of `Units`, constant, slope, square_slope and shift; what comes behind is of `Shares`,
    before and gains, and again of `Units`, origin and scale. numbers: uncertainty of each memory,
    spread so far, the batch's share in it, correction, tolerance, least.
    """
    constant, slope, square_slope, shift, *steps = looks
    if not takes(inputs, slope) or _is_shared(inputs):
        return None
    moments = room.for_images(inputs.shape[0])
    about = None if shift is None else at_hand(shift)
    looked = inputs.numpy(), constant, slope, square_slope, moments, about
    found = kernel.layer(*looked, *steps, room.batch, room.mean, room.variance, *numbers)
    if found is None:
        return None
    spread, source_weight = found
    return Found(moments, room.batch, spread, source_weight, room.target)


def marks_at_once(inputs: Tensor, centre: Tensor, every: int) -> Array | None:
    """signature.py: `Marks` of the quarters of pictures, one below the other.

    centre: of all channels, of which every so many are looked at. (3, image, channel, part).
    """
    if not takes(inputs, at_hand(centre)):
        return None
    about, looked_at = at_hand(centre), -(-len(centre) // every)
    out = space(about).empty((3, inputs.shape[0], looked_at, 4), about.dtype)
    return out if kernel.marks(inputs.numpy(), about, out, every) else None


def sight_at_once(
    marks: Array, scale: Tensor, every: int, floor: float, most: float
) -> tuple[Array, Array] | None:
    """Mean signature of images, (feature,), and `scatter_of` their parts, from `marks_at_once`.

    scale: of all channels. floor: of a variance. most: that a number of a signature may be.
    """
    features = marks.shape[0] * marks.shape[2]
    rows = space(marks).empty((1 + features, features), marks.dtype)
    done = kernel.sight(marks, at_hand(scale), rows[0], rows[1:], every, floor, most)
    return (rows[0], rows[1:]) if done else None


def whitened_at_once(
    scatter: Array, rows: Array, off_diagonal: float, diagonal: float, least: float
) -> Array | None:
    """content.py: squared lengths of rows, (row, feature), divided by the root of a covariance.

    That is the scatter, times a number off and one on the diagonal, which least is added to.
    """
    if kernel is None or isinstance(rows, Tensor) or isinstance(scatter, Tensor):
        return None
    out = space(rows).empty(len(rows), rows.dtype)
    done = kernel.whitened(scatter, rows, out, off_diagonal, diagonal, least)
    return out if done else None


def forward_at_once(belief: Array, predictions: Array, stays: Array) -> tuple[Array, Array] | None:
    """label_order.py: beliefs, (image, stay, class), and their sums, (image, stay)."""
    if kernel is None or isinstance(predictions, Tensor):
        return None
    images, classes = predictions.shape
    of, dtype = space(predictions), predictions.dtype
    beliefs, totals = (of.empty((images, len(stays), *last), dtype) for last in ((classes,), ()))
    done = kernel.read_forward(predictions, belief, stays, beliefs, totals)
    return (beliefs, totals) if done else None


def backward_at_once(beliefs: Array, predictions: Array, stays: Array) -> Array | None:
    """label_order.py: beliefs with what the images after each tell, (image, stay, class)."""
    if kernel is None or isinstance(predictions, Tensor) or not len(beliefs):
        return None
    smoothed = beliefs * 1
    totals = space(beliefs).empty(beliefs.shape[:2], beliefs.dtype)
    done = kernel.read_backward(predictions, smoothed[0], stays, smoothed, totals)
    return smoothed if done else None
