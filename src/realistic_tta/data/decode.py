"""Decodes pictures that come from elsewhere: a small file may claim to be a huge picture."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from PIL import Image

from realistic_tta.errors import DataError

MOST_PIXELS = 64 << 20  # the largest sheet of the npm package has 10 million


def decode_rgb(
    content: bytes | Path, where: str, size: tuple[int, int] | None = None
) -> Image.Image:
    """The picture in RGB; refused before it is decoded if its size is wrong or beyond reason."""
    try:
        with (
            warnings.catch_warnings(),
            Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as picture,
        ):
            warnings.simplefilter("ignore")  # of pixels, which are counted here
            _check(where, picture.size, size)
            return picture.convert("RGB")
    except DataError:
        raise
    except Exception as error:  # a damaged picture can raise anything
        told = f"{len(content):,} bytes are " if isinstance(content, bytes) else ""
        raise DataError(f"{where}: {told}no whole picture that can be read ({error})") from error


def _check(where: str, found: tuple[int, int], expected: tuple[int, int] | None) -> None:
    width, height = found
    if expected is not None and found != expected:
        raise DataError(
            f"{where}: {width} x {height} pixels; expected {expected[0]} x {expected[1]}"
        )
    if width * height > MOST_PIXELS:
        raise DataError(
            f"{where}: {width} x {height} pixels; expected at most {MOST_PIXELS:,} of them"
        )
