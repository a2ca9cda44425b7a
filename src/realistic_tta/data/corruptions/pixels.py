"""What the corruption families share: bytes to numbers and back, zooming, motion blur.

Images are (image, row, column, colour), bytes from 0 to 255 outside, numbers from 0 to 1 inside.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.floating]  # float32 where nothing else is said


def to_numbers(images: Bytes) -> Numbers:
    """Bytes to numbers from 0 to 1."""
    return images.astype(np.float32) / 255


def to_bytes(images: NDArray[np.floating]) -> Bytes:
    """Numbers from 0 to 1 to bytes, cut off, not rounded: as the published sets were made."""
    cut: Bytes = (np.clip(images, 0, 1) * 255).astype(np.uint8)
    return cut


def zoom(layers: Numbers, factor: float) -> Numbers:
    """Each image enlarged about its middle by the factor, at the same size; bilinear.

    layers: (image, row, column, colour). Rows and columns are enlarged by one matrix each, which is
    what SciPy's zoom of order 1 computes point by point.
    """
    matrix = _zoom_matrix(layers.shape[1], factor)  # (row, row)
    rows = _multiply(matrix, layers).swapaxes(1, 2)  # (image, column, row, colour)
    return _multiply(matrix, np.ascontiguousarray(rows)).swapaxes(1, 2)


def _multiply(matrix: Numbers, layers: Numbers) -> Numbers:
    """The matrix applied along the second axis."""
    flat = layers.reshape(*layers.shape[:2], -1)
    product: Numbers = np.matmul(matrix, flat).reshape(layers.shape)
    return product


@cache
def _zoom_matrix(side: int, factor: float) -> Numbers:
    """Row i holds the weights of the old pixels in new pixel i."""
    crop = math.ceil(side / factor)
    top = (side - crop) // 2
    large = round(crop * factor)
    trim = (large - side) // 2
    matrix = np.zeros((side, side), np.float32)
    for row in range(side):
        place = (row + trim) * (crop - 1) / (large - 1) if large > 1 else 0.0
        low = min(int(place), crop - 2) if crop > 1 else 0
        matrix[row, top + low] += 1 - (place - low)
        if crop > 1:
            matrix[row, top + low + 1] += place - low
    return matrix


def motion_blur(image: NDArray[np.generic], radius: float, sigma: float, angle: float) -> Numbers:
    """One image smeared along the angle (degrees): 2 radius + 1 copies, half-Gaussian weights.

        weight_i ~ exp(-i^2 / (2 sigma^2)), moved by i pixels, rounded by ceil(v - 1/2)

    Edges are replicated; copies that would leave the image are dropped. image: (row, column, ...).
    """
    weights = motion_weights(radius, sigma)
    side = image.shape[0]
    across = math.cos(math.radians(angle))
    down = math.sin(math.radians(angle))
    room = len(weights)
    edges = ((room, room), (room, room)) + ((0, 0),) * (image.ndim - 2)
    padded = np.pad(image.astype(np.float32), edges, mode="edge")
    blurred = np.zeros(image.shape, np.float32)
    for place, weight in enumerate(weights):
        row = room + math.ceil(place * down - 0.5)
        column = room + math.ceil(place * across - 0.5)
        if max(abs(row - room), abs(column - room)) >= side:
            break
        blurred += weight * padded[row : row + side, column : column + image.shape[1]]
    return blurred


def motion_weights(radius: float, sigma: float) -> Numbers:
    """The half-Gaussian of `motion_blur`; sums to one."""
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    normal: Numbers = (weights / weights.sum()).astype(np.float32)
    return normal
