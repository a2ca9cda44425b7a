"""Operations shared by the corruptions: conversions, zoom, motion blur and HSV.

Images are (image, row, column, color): uint8 at the interface, floats from 0 to 1 inside.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.floating]  # float32 by default
Colors = NDArray[np.float64]


def to_numbers(images: Bytes) -> Numbers:
    """Convert uint8 to floats from 0 to 1."""
    return images.astype(np.float32) / 255


def to_bytes(images: NDArray[np.floating]) -> Bytes:
    """Convert floats to uint8 by truncation, as the published sets were made."""
    cut: Bytes = (np.clip(images, 0, 1) * 255).astype(np.uint8)
    return cut


def zoom(layers: Numbers, factor: float) -> Numbers:
    """Enlarge each image about its center by the factor and crop it to its size; bilinear.

    layers: (image, row, column, color). Rows and columns are multiplied by one matrix each, which
    equals SciPy's zoom of order 1.
    """
    matrix = _zoom_matrix(layers.shape[1], factor)  # (row, row)
    rows = _multiply(matrix, layers).swapaxes(1, 2)  # (image, column, row, color)
    return _multiply(matrix, np.ascontiguousarray(rows)).swapaxes(1, 2)


def _multiply(matrix: Numbers, layers: Numbers) -> Numbers:
    """Apply the matrix along the second axis."""
    flat = layers.reshape(*layers.shape[:2], -1)
    product: Numbers = np.matmul(matrix, flat).reshape(layers.shape)
    return product


@cache
def _zoom_matrix(side: int, factor: float) -> Numbers:
    """Return the weights of the old pixels (column) in the new pixels (row)."""
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
    """Blur one image along an angle in degrees: 2 radius + 1 shifted copies are averaged.

        weight_i ~ exp(-i^2 / (2 sigma^2)), shifted by i pixels, rounded by ceil(v - 1/2)

    Edges are replicated. Shifts beyond the image are dropped. image: (row, column, ...).
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
    """Return the half-Gaussian weights of `motion_blur`, which sum to one."""
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    normal: Numbers = (weights / weights.sum()).astype(np.float32)
    return normal


def to_hsv(rgb: Colors) -> Colors:
    """Convert (..., 3) from RGB to HSV, all from 0 to 1; gray has hue and saturation 0."""
    red, green, blue = np.moveaxis(rgb, -1, 0)
    value = rgb.max(axis=-1)
    spread = value - rgb.min(axis=-1)
    divisor = np.where(spread == 0, 1, spread)
    # Where two channels are the largest, the later of red, green, blue decides, as in scikit-image.
    hue = (green - blue) / divisor
    hue = np.where(value == green, 2 + (blue - red) / divisor, hue)
    hue = np.where(value == blue, 4 + (red - green) / divisor, hue)
    hue = np.where(spread == 0, 0, (hue / 6) % 1)
    saturation = np.where(spread == 0, 0, spread / np.where(value == 0, 1, value))
    return np.stack([hue, saturation, value], axis=-1)


def from_hsv(hsv: Colors) -> Colors:
    """Convert (..., 3) from HSV to RGB, all from 0 to 1."""
    hue, saturation, value = np.moveaxis(hsv, -1, 0)
    sector = np.floor(hue * 6)
    rest = hue * 6 - sector
    low = value * (1 - saturation)
    falling = value * (1 - rest * saturation)
    rising = value * (1 - (1 - rest) * saturation)
    sector = sector.astype(np.int64) % 6
    red = np.choose(sector, [value, falling, low, low, rising, value])
    green = np.choose(sector, [rising, value, value, falling, low, low])
    blue = np.choose(sector, [low, low, rising, value, value, falling])
    return np.stack([red, green, blue], axis=-1)
