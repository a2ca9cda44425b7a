"""Small images for tests of the corruptions: smooth shapes with some texture, and edge cases."""

from __future__ import annotations

import numpy as np

from realistic_tta.data.corruptions.pixels import Bytes


def pictures(count: int = 8, side: int = 32, seed: int = 0) -> Bytes:
    """Waves of random direction and color."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side] * (32 / side)
    directions = generator.uniform(-0.6, 0.6, (count, 2, 3))
    phases = generator.uniform(0, 6, (count, 1, 1, 3))
    waves = np.sin(
        rows[None, :, :, None] * directions[:, 0, None, None]
        + columns[None, :, :, None] * directions[:, 1, None, None]
        + phases
    )
    images: Bytes = (127.5 + 120 * waves).astype(np.uint8)
    return images


def flat(level: int, count: int = 4, side: int = 32) -> Bytes:
    return np.full((count, side, side, 3), level, np.uint8)
