"""A small file may claim to be a huge picture: it is measured before it is decoded."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from PIL import Image

from realistic_tta.data.decode import decode_rgb
from realistic_tta.data.imagenet import read_photograph
from realistic_tta.errors import DataError


def png(width: int, height: int) -> bytes:
    """With a header that says so, and no pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header) - 4) + header + struct.pack(">I", zlib.crc32(header))
    empty = b"IDAT" + zlib.compress(b"")
    data = struct.pack(">I", len(empty) - 4) + empty + struct.pack(">I", zlib.crc32(empty))
    return b"\x89PNG\r\n\x1a\n" + chunk + data


@pytest.mark.parametrize("side", [9000, 60_000, 2**31 - 1])
def test_a_picture_beyond_reason_is_refused_before_it_is_decoded(side: int) -> None:
    tracemalloc.start()
    with pytest.raises(DataError, match=r"x\.png"):
        decode_rgb(png(side, side), "x.png")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_picture_of_another_size_is_refused_before_it_is_decoded() -> None:
    """Its pixels are missing, which only decoding would tell."""
    with pytest.raises(DataError, match=r"x.png: 300 x 200 pixels; expected 224 x 224"):
        decode_rgb(png(300, 200), "x.png", (224, 224))
    with pytest.raises(DataError, match="not a readable image"):
        decode_rgb(png(224, 224), "x.png", (224, 224))


def test_a_good_picture_is_decoded() -> None:
    file = io.BytesIO()
    Image.new("L", (5, 3), 7).save(file, "png")
    assert decode_rgb(file.getvalue(), "x.png").getpixel((4, 2)) == (7, 7, 7)


def test_a_photograph_that_is_a_line_is_refused(tmp_path: Path) -> None:
    """Enlarged until its shorter side has 256 pixels, it would fill the memory."""
    Image.new("RGB", (30_000, 1)).save(tmp_path / "0000.png")
    with pytest.raises(DataError, match=r"0000.png: 30000 x 1 pixels; expected at most 20 to 1"):
        read_photograph(tmp_path / "0000.png")
