"""All corruptions by name, and the one call that applies one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from realistic_tta.errors import SettingError, unknown

from . import blur, digital, noise, weather
from .parameters import PARAMETERS
from .pixels import Bytes

FUNCTIONS: dict[str, Callable[..., Bytes]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": weather.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "spatter": weather.spatter,
    "saturate": digital.saturate,
}


def corrupt(images: Bytes, name: str, severity: int, generator: np.random.Generator) -> Bytes:
    """The images under one corruption; the same for the same state of the generator.

    images: (image, row, column, colour), bytes, 32 or 224 pixels square. severity: 1 to 5.
    """
    check(name, severity)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise SettingError(
            f"images are {images.dtype}, shape {images.shape}; expected bytes (uint8) of shape "
            "(image, row, column, 3)"
        )
    side = images.shape[1]
    if side not in PARAMETERS or images.shape[2] != side:
        raise SettingError(
            f"images are {side} x {images.shape[2]} pixels; the published parameters are for "
            f"squares of {' or '.join(map(str, PARAMETERS))}"
        )
    parameters = PARAMETERS[side][name][severity - 1]
    return FUNCTIONS[name](images, *parameters, generator=generator)


def check(name: str, severity: int) -> None:
    """Raises unless there is such a corruption at such a severity."""
    if name not in FUNCTIONS:
        raise SettingError(unknown("corruption", name, FUNCTIONS))
    if severity not in range(1, 6):
        raise SettingError(f"severity is {severity}; expected 1, 2, 3, 4 or 5")
