"""RGB to hue, saturation, value and back; used by brightness and saturate. All from 0 to 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Colours = NDArray[np.float64]


def to_hsv(rgb: Colours) -> Colours:
    """(..., 3) red, green, blue to hue, saturation, value; grey has hue and saturation 0."""
    red, green, blue = np.moveaxis(rgb, -1, 0)
    value = rgb.max(axis=-1)
    spread = value - rgb.min(axis=-1)
    divisor = np.where(spread == 0, 1, spread)
    # Where two colours are the largest, the later of red, green, blue decides, as in scikit-image.
    hue = (green - blue) / divisor
    hue = np.where(value == green, 2 + (blue - red) / divisor, hue)
    hue = np.where(value == blue, 4 + (red - green) / divisor, hue)
    hue = np.where(spread == 0, 0, (hue / 6) % 1)
    saturation = np.where(spread == 0, 0, spread / np.where(value == 0, 1, value))
    return np.stack([hue, saturation, value], axis=-1)


def from_hsv(hsv: Colours) -> Colours:
    """(..., 3) hue, saturation, value to red, green, blue."""
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
