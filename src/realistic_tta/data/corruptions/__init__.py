"""The 15 corruptions of CIFAR-C and ImageNet-C, and four more for validation, at five severities.

The name "clean" stands for no corruption at all.

`corrupt` applies one. The functions are in noise.py, blur.py, weather.py and digital.py, their
published parameters in parameters.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from realistic_tta.errors import OptionError, unknown

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
    "clean": lambda images, generator: images.copy(),  # noqa: ARG005 - called as the others
}


def corrupt(images: Bytes, name: str, severity: int, generator: np.random.Generator) -> Bytes:
    """Return the images with one corruption; equal generators give equal results.

    Args:
        images: (image, row, column, 3) uint8, 32 or 224 px square.
        name: a key of FUNCTIONS, such as "fog".
        severity: 1 to 5.
        generator: source of randomness.
    """
    check_corruption(name, severity)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise OptionError(
            f"images are {images.dtype}, shape {images.shape}; expected bytes (uint8) of shape "
            "(image, row, column, 3)"
        )
    side = images.shape[1]
    if side not in PARAMETERS or images.shape[2] != side:
        raise OptionError(
            f"images are {side} x {images.shape[2]} pixels; the published parameters are for "
            f"squares of {' or '.join(map(str, PARAMETERS))}"
        )
    parameters = PARAMETERS[side][name][severity - 1]
    return FUNCTIONS[name](images, *parameters, generator=generator)


def check_corruption(name: str, severity: int) -> None:
    """Raise OptionError unless the corruption and the severity exist."""
    if name not in FUNCTIONS:
        raise OptionError(unknown("corruption", name, FUNCTIONS))
    if severity not in range(1, 6):
        raise OptionError(f"severity is {severity}; expected 1, 2, 3, 4 or 5")
