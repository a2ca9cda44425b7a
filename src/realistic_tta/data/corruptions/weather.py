"""Weather: snow, frost, fog, brightness; extra: spatter. After Hendrycks and Dietterich 2019."""

# ruff: noqa: ARG001 - every corruption takes a generator, whether it is random or not

from __future__ import annotations

from functools import cache
from importlib import resources

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from .pixels import Bytes, Numbers, from_hsv, motion_blur, to_bytes, to_hsv, to_numbers, zoom

FROST_PHOTOS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


def snow(  # noqa: PLR0917 - the published parameters, in their order
    images: Bytes,
    mean: float,
    std: float,
    enlarge: float,
    threshold: float,
    radius: float,
    sigma: float,
    blend: float,
    *,
    generator: np.random.Generator,
) -> Bytes:
    """Add flakes of thresholded noise with motion blur, and the same rotated by 180 degrees.

    The image is whitened first: blend * image + (1 - blend) * max(image, 1.5 gray + 0.5).
    """
    numbers = to_numbers(images)
    flakes = generator.normal(mean, std, (*images.shape[:3], 1)).astype(np.float32)
    flakes = zoom(flakes, enlarge)
    flakes[flakes < threshold] = 0
    angles = generator.uniform(-135, -45, len(images))
    layers = to_bytes(flakes)[..., 0]  # (image, row, column)
    pairs = zip(layers, angles, strict=True)
    blown = np.rint(np.stack([motion_blur(each, radius, sigma, angle) for each, angle in pairs]))
    blown = (blown / 255)[..., None].astype(np.float32)
    gray = (numbers @ np.array([0.299, 0.587, 0.114], np.float32))[..., None]
    numbers = blend * numbers + (1 - blend) * np.maximum(numbers, 1.5 * gray + 0.5)
    return to_bytes(numbers + blown + blown[:, ::-1, ::-1])


def frost(
    images: Bytes,
    image_part: float,
    frost_part: float,
    scale: float,
    *,
    generator: np.random.Generator,
) -> Bytes:
    """Return image_part * image + frost_part * a random crop of one of five frost photographs."""
    side = images.shape[1]
    corrupted = np.empty_like(images)
    for place, image in enumerate(images):
        photo = frost_photo(int(generator.integers(len(FROST_PHOTOS))), scale)
        row = generator.integers(photo.shape[0] - side)
        column = generator.integers(photo.shape[1] - side)
        piece = photo[row : row + side, column : column + side]
        mixed = image_part * image.astype(np.float32) + frost_part * piece.astype(np.float32)
        corrupted[place] = np.clip(mixed, 0, 255).astype(np.uint8)
    return corrupted


@cache
def frost_photo(number: int, scale: float) -> Bytes:
    """Return a scaled frost photograph in RGB; it is cached."""
    file = resources.files("realistic_tta").joinpath("assets", "frost", FROST_PHOTOS[number])
    photo = cv2.imdecode(np.frombuffer(file.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    assert photo is not None
    if scale != 1:
        photo = cv2.resize(photo, (0, 0), fx=scale, fy=scale)
    return np.ascontiguousarray(photo[..., ::-1]).astype(np.uint8)


def fog(images: Bytes, amount: float, decay: float, *, generator: np.random.Generator) -> Bytes:
    """Add diamond-square noise, then scale by max / (max + amount)."""
    numbers = to_numbers(images)
    side = images.shape[1]
    size = 1 << (side - 1).bit_length()  # 32 for 32 px, 256 for 224
    cloud = plasma(len(images), size, decay, generator)[:, :side, :side, None]
    brightest = numbers.max(axis=(1, 2, 3), keepdims=True)
    scale = brightest / (brightest + amount)
    return to_bytes((numbers + amount * cloud) * scale)


def plasma(count: int, size: int, decay: float, generator: np.random.Generator) -> Numbers:
    """Return diamond-square noise from 0 to 1, (cloud, row, column); size is a power of two.

    Each round halves the grid. The center of a square is the mean of its corners, the center of an
    edge the mean of its four neighbors, wrapped around, each plus noise. The noise is divided by
    the square of `decay` from round to round.
    """
    clouds = np.zeros((count, size, size))
    step, wibble = size, 100.0

    def noisy_mean(four: NDArray[np.float64]) -> NDArray[np.float64]:
        return four / 4 + wibble * generator.uniform(-wibble, wibble, four.shape)

    while step >= 2:
        half = step // 2
        corners = clouds[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        clouds[:, half::step, half::step] = noisy_mean(pairs + np.roll(pairs, -1, axis=2))
        middles = clouds[:, half::step, half::step]
        beside = middles + np.roll(middles, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        clouds[:, ::step, half::step] = noisy_mean(beside)
        above = middles + np.roll(middles, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        clouds[:, half::step, ::step] = noisy_mean(above)
        step, wibble = half, wibble / decay
    clouds -= clouds.min(axis=(1, 2), keepdims=True)
    clouds /= clouds.max(axis=(1, 2), keepdims=True)
    return clouds.astype(np.float32)


def brightness(images: Bytes, amount: float, *, generator: np.random.Generator) -> Bytes:
    """Add the amount to the value of HSV."""
    hsv = to_hsv(images / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + amount, 0, 1)
    return to_bytes(from_hsv(hsv))


def spatter(  # noqa: PLR0917 - the published parameters, in their order
    images: Bytes,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: float,
    *,
    generator: np.random.Generator,
) -> Bytes:
    """Add drops of water (mud = 0) or mud (mud = 1) where smoothed noise is high.

    strength: brightness of the water, or sigma of the Gaussian that smooths the mud.
    """
    liquid = generator.normal(mean, std, images.shape[:3]).astype(np.float32)
    liquid = gaussian_filter(liquid, (0, sigma, sigma), mode="nearest", truncate=4)
    liquid[liquid < threshold] = 0
    numbers = to_numbers(images)
    if mud:
        wet = (liquid > threshold).astype(np.float32)
        wet = gaussian_filter(wet, (0, strength, strength), mode="nearest", truncate=4)
        wet[wet < 0.8] = 0
        brown = np.array([63, 42, 20], np.float32) / 255
        return to_bytes(numbers * (1 - wet[..., None]) + wet[..., None] * brown)
    turquoise = np.array([175, 238, 238], np.float32) / 255
    drops = np.stack([_drops(layer) for layer in to_bytes(liquid)])
    peak = drops.max(axis=(1, 2), keepdims=True)
    drops = strength * np.divide(drops, peak, out=np.zeros_like(drops), where=peak > 0)
    return to_bytes(numbers + drops[..., None] * turquoise)


def _drops(liquid: Bytes) -> Numbers:
    """Return the shading of one layer of water, from the distance to its edges."""
    edges = np.asarray(cv2.Canny(liquid, 50, 150))
    distance = cv2.distanceTransform(255 - edges, cv2.DIST_L2, 5)
    distance = np.minimum(np.asarray(distance), 20)
    even = cv2.equalizeHist(np.asarray(cv2.blur(distance, (3, 3))).astype(np.uint8))
    relief = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
    shade = cv2.blur(np.asarray(cv2.filter2D(even, cv2.CV_8U, relief)), (3, 3))
    return liquid.astype(np.float32) * np.asarray(shade).astype(np.float32)
