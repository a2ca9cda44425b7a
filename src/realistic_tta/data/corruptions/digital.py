"""Digital: contrast, elastic, pixelate, jpeg; extra: saturate. Hendrycks and Dietterich 2019."""

# ruff: noqa: ARG001 - every corruption takes a generator, whether it is random or not

from __future__ import annotations

import io
import math

import cv2
import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates

from .pixels import Bytes, Numbers, from_hsv, to_bytes, to_hsv, to_numbers


def contrast(images: Bytes, factor: float, *, generator: np.random.Generator) -> Bytes:
    """Return (image - mean) * factor + mean, with the mean per color channel and image."""
    numbers = images / 255
    mean = numbers.mean(axis=(1, 2), keepdims=True)
    return to_bytes((numbers - mean) * factor + mean)


def elastic_transform(
    images: Bytes, alpha: float, sigma: float, affine: float, *, generator: np.random.Generator
) -> Bytes:
    """Apply a random affine map, then move every pixel by smoothed noise.

    In pixels: alpha scales the noise, sigma smooths it, affine limits the map's control points.
    """
    pairs = [_elastic(image, alpha, sigma, affine, generator) for image in to_numbers(images)]
    return to_bytes(np.stack(pairs))


def _elastic(
    image: Numbers, alpha: float, sigma: float, affine: float, generator: np.random.Generator
) -> Numbers:
    side = image.shape[0]
    middle, reach = side // 2, side // 3
    corners = np.array([[1, 1], [1, -1], [-1, -1]], np.float32) * reach + middle
    moved = corners + generator.uniform(-affine, affine, (3, 2)).astype(np.float32)
    matrix = cv2.getAffineTransform(corners, moved)
    image = np.asarray(
        cv2.warpAffine(image, matrix, (side, side), borderMode=cv2.BORDER_REFLECT_101)
    )
    across, down = (
        _smooth(generator.uniform(-1, 1, (side, side)), sigma) * alpha for _ in range(2)
    )
    rows, columns = np.mgrid[:side, :side]
    places = np.stack([rows + down, columns + across])
    channels = [map_coordinates(image[..., c], places, order=1, mode="reflect") for c in range(3)]
    return np.stack(channels, axis=-1)


def _smooth(noise: Numbers, sigma: float) -> Numbers:
    if math.isclose(sigma, 0):
        return noise
    smoothed: Numbers = gaussian_filter(noise, sigma, mode="reflect", truncate=3)
    return smoothed


def pixelate(images: Bytes, scale: float, *, generator: np.random.Generator) -> Bytes:
    """Shrink to `scale` and enlarge again with the box filter."""
    side = images.shape[1]
    small = (int(side * scale),) * 2
    box = Image.Resampling.BOX
    return np.stack(
        [
            np.asarray(Image.fromarray(image).resize(small, box).resize((side, side), box))
            for image in images
        ]
    )


def jpeg_compression(images: Bytes, quality: float, *, generator: np.random.Generator) -> Bytes:
    """Encode as JPEG of this quality and decode."""
    return np.stack([_through_jpeg(image, quality) for image in images])


def _through_jpeg(image: Bytes, quality: float) -> Bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=int(quality))
    return np.asarray(Image.open(file))


def saturate(
    images: Bytes, factor: float, offset: float, *, generator: np.random.Generator
) -> Bytes:
    """Multiply the saturation of HSV by the factor and add the offset."""
    hsv = to_hsv(images / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + offset, 0, 1)
    return to_bytes(from_hsv(hsv))
