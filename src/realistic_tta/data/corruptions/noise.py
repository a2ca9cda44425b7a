"""Noise: gaussian, shot, impulse, and the extra speckle. After Hendrycks and Dietterich 2019."""

from __future__ import annotations

import numpy as np

from .pixels import Bytes, to_bytes, to_numbers


def gaussian_noise(images: Bytes, sigma: float, *, generator: np.random.Generator) -> Bytes:
    """Add N(0, sigma^2) to each value."""
    numbers = to_numbers(images)
    return to_bytes(numbers + sigma * generator.standard_normal(images.shape, np.float32))


def shot_noise(images: Bytes, photons: float, *, generator: np.random.Generator) -> Bytes:
    """Return Poisson(images * photons) / photons."""
    return to_bytes(generator.poisson(to_numbers(images) * photons) / photons)


def impulse_noise(images: Bytes, amount: float, *, generator: np.random.Generator) -> Bytes:
    """Set a fraction `amount` of all values to black or white, half each."""
    hit = generator.random(images.shape, np.float32) < amount
    white = generator.random(images.shape, np.float32) < 0.5
    return np.where(hit, np.where(white, 255, 0), images).astype(np.uint8)


def speckle_noise(images: Bytes, sigma: float, *, generator: np.random.Generator) -> Bytes:
    """Multiply each value by 1 + N(0, sigma^2)."""
    numbers = to_numbers(images)
    return to_bytes(numbers * (1 + sigma * generator.standard_normal(images.shape, np.float32)))
