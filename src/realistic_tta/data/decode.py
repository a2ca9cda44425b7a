"""Decodes image files of unknown origin: a small file may claim to be a huge image."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from PIL import Image

from realistic_tta.errors import DataError

MAX_PIXELS = 64 << 20  # the largest sheet of the npm package has 10 million


def decode_rgb(
    content: bytes | Path, where: str, size: tuple[int, int] | None = None
) -> Image.Image:
    """Decode an image to RGB. Its size is checked before it is decoded.

    Args:
        content: the encoded image, or its path.
        where: name of the image in error messages.
        size: the expected (width, height); by default any reasonable size.
    """
    try:
        with (
            warnings.catch_warnings(),
            Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as image,
        ):
            warnings.simplefilter("ignore")  # Pillow warns of many pixels, which are counted here
            _check_size(where, image.size, size)
            return image.convert("RGB")
    except DataError:
        raise
    except Exception as error:  # a damaged image can raise anything
        length = f" ({len(content):,} bytes)" if isinstance(content, bytes) else ""
        raise DataError(f"{where}: not a readable image{length}: {error}") from error


def _check_size(where: str, found: tuple[int, int], expected: tuple[int, int] | None) -> None:
    width, height = found
    if expected is not None and found != expected:
        raise DataError(
            f"{where}: {width} x {height} pixels; expected {expected[0]} x {expected[1]}"
        )
    if width * height > MAX_PIXELS:
        raise DataError(f"{where}: {width} x {height} pixels; expected at most {MAX_PIXELS:,}")
