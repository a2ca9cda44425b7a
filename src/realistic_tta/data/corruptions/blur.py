"""Blur: defocus, glass, motion, zoom; extra: gaussian. After Hendrycks and Dietterich 2019."""

# ruff: noqa: ARG001 - every corruption takes a generator, whether it is random or not

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from .pixels import Bytes, Numbers, to_bytes, to_numbers, zoom
from .pixels import motion_blur as blur_along


def defocus_blur(
    images: Bytes, radius: float, alias_blur: float, *, generator: np.random.Generator
) -> Bytes:
    """Convolve with a disk whose edge is smoothed by a Gaussian."""
    kernel = disk(radius, alias_blur)
    return to_bytes(np.stack([cv2.filter2D(image, -1, kernel) for image in to_numbers(images)]))


def disk(radius: float, alias_blur: float) -> NDArray[np.float64]:
    """Return a disk that sums to one, on a 17 x 17 grid up to radius 8."""
    small = radius <= 8
    reach = np.arange(-8, 9) if small else np.arange(-radius, radius + 1)
    inside = (reach[:, None] ** 2 + reach[None, :] ** 2 <= radius**2).astype(np.float64)
    size = (3, 3) if small else (5, 5)
    return np.asarray(cv2.GaussianBlur(inside / inside.sum(), size, sigmaX=alias_blur))


def glass_blur(
    images: Bytes, sigma: float, shift: float, rounds: float, *, generator: np.random.Generator
) -> Bytes:
    """Replace pixels by near neighbors, between two Gaussian blurs.

    From the far corner inwards, each pixel copies one up to `shift` away. The published program
    intends to swap the two, but the neighbor keeps its value. All images are processed together,
    each with its own neighbors.
    """
    blurred = to_bytes(_gaussian(to_numbers(images), sigma))
    side, reach, every = images.shape[1], int(shift), np.arange(len(images))
    for _ in range(int(rounds)):
        for row in range(side - reach, reach, -1):
            columns = range(side - reach, reach, -1)
            steps = generator.integers(-reach, reach, (len(columns), 2, len(images)))
            for column, (across, down) in zip(columns, steps, strict=True):
                blurred[:, row, column] = blurred[every, row + down, column + across]
    return to_bytes(_gaussian(to_numbers(blurred), sigma))


def motion_blur(
    images: Bytes, radius: float, sigma: float, *, generator: np.random.Generator
) -> Bytes:
    """Blur each image along its own angle, within 45 degrees of the horizontal."""
    angles = generator.uniform(-45, 45, len(images))
    pairs = zip(images, angles, strict=True)
    blurred = np.stack([blur_along(image, radius, sigma, angle) for image, angle in pairs])
    return np.clip(np.rint(blurred), 0, 255).astype(np.uint8)  # the published tool rounds here


def zoom_blur(images: Bytes, limit: float, step: float, *, generator: np.random.Generator) -> Bytes:
    """Average the image with copies enlarged by 1, 1 + step, ... below `limit`."""
    numbers = to_numbers(images)
    factors = np.arange(1, limit, step)
    total = numbers.copy()
    for factor in factors:
        total += zoom(numbers, float(factor))
    return to_bytes(total / (len(factors) + 1))


def gaussian_blur(images: Bytes, sigma: float, *, generator: np.random.Generator) -> Bytes:
    """Convolve with a Gaussian."""
    return to_bytes(_gaussian(to_numbers(images), sigma))


def _gaussian(numbers: Numbers, sigma: float) -> Numbers:
    if math.isclose(sigma, 0):
        return numbers
    blurred: Numbers = gaussian_filter(numbers, (0, sigma, sigma, 0), mode="nearest", truncate=4)
    return blurred
