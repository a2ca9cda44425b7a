"""Opens CIFAR-10-C and CIFAR-100-C as published: one .npy per corruption, memory-mapped.

A file holds severities 1 to 5 in blocks of equal size; labels.npy belongs to each of them. They are
read from a folder or in place from the published .tar. A smaller set, as written by `rtta corrupt`,
lists its severities and number of images in corruptions.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError, unknown

from .archives import ByteRange, open_indexed_tar
from .images import Images, check_labels
from .registry import CLEAN, CORRUPTIONS, SEVERITIES

DESCRIPTION_FILE = "corruptions.json"
SIDE = 32
ADVICE = (
    "Published sets lack the clean images; `rtta corrupt DATASET --corruptions clean --out FOLDER` "
    "adds them to a folder"
)


@dataclass(frozen=True, eq=False)
class CorruptedArrays:
    """A CIFAR-C set; `part` returns one corruption at one severity.

    Attributes:
        arrays: corruption -> (severity x image, 32, 32, 3) uint8, memory-mapped.
        labels: (severity x image,) int64.
        severities: in the order of the blocks.
    """

    arrays: Mapping[str, NDArray[np.uint8]]
    labels: NDArray[np.int64]
    severities: tuple[int, ...]
    classes: tuple[str, ...]

    def part(self, corruption: str, severity: int) -> Images:
        """Return the images of one corruption at one severity, in file order."""
        if corruption not in self.arrays:
            raise DataError(unknown("corruption", corruption, self.arrays))
        check_severity(severity, self.severities)
        images = len(self.labels) // len(self.severities)
        start = self.severities.index(severity) * images
        block = slice(start, start + images)
        return Images(self.arrays[corruption][block], self.labels[block], self.classes)


def check_severity(severity: int, known: tuple[int, ...]) -> None:
    """Raise DataError unless the set has this severity."""
    if severity not in known:
        raise DataError(f"severity {severity} is not in this set; expected one of {known}")


def open_cifar_c(
    source: Path, classes: Sequence[str], *, corruptions: Sequence[str] = CORRUPTIONS
) -> CorruptedArrays:
    """Open a set in a folder or in the published archive. Images are not read yet.

    Args:
        source: a folder with <corruption>.npy and labels.npy, a folder that contains that folder
            or the archive, or the archive.
        classes: class names by label.
        corruptions: the required corruptions.
    """
    source = _locate(source)
    files = _in_folder(source) if source.is_dir() else _in_archive(source)
    labels = _labels(source, files, len(classes))
    severities = _severities(files, len(labels))
    arrays = {name: _images(source, files, name, len(labels)) for name in corruptions}
    return CorruptedArrays(arrays, labels, severities, tuple(classes))


def _locate(source: Path) -> Path:
    if not source.exists():
        raise DataError(f"{source}: no such file or folder; expected a CIFAR-C set")
    if source.is_file() or (source / "labels.npy").exists():
        return source
    inside = sorted(path.parent for path in source.glob("*/labels.npy"))
    inside = inside or sorted(source.glob("CIFAR-*-C.tar"))
    if len(inside) != 1:
        found = ", ".join(path.name for path in inside) or "none of these"
        raise DataError(
            f"{source}: found {found}; expected labels.npy, "
            "or one folder with labels.npy, or one CIFAR-*-C.tar"
        )
    return inside[0]


def _in_folder(folder: Path) -> dict[str, ByteRange]:
    paths = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: ByteRange(path, 0, path.stat().st_size, str(path)) for path in paths}


def _in_archive(path: Path) -> dict[str, ByteRange]:
    """Return the positions of the members; nothing is unpacked."""
    with open_indexed_tar(path) as found:
        members = [member for member in found if member.isfile()]
    return {
        member.name.rsplit("/", 1)[-1]: ByteRange(
            path, member.offset_data, member.size, f"{path}:{member.name}"
        )
        for member in members
    }


def _required(source: Path, files: Mapping[str, ByteRange], name: str) -> ByteRange:
    if name not in files:
        found = ", ".join(sorted(files)) or "no file"
        advice = f". {ADVICE}" if name == f"{CLEAN}.npy" else ""
        raise DataError(f"{source}: {name} is missing; found {found}{advice}")
    return files[name]


def map_npy(source: ByteRange) -> NDArray[Any]:
    """Memory-map an array in .npy format."""
    with source.path.open("rb") as file:
        file.seek(source.offset)
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, by_column, dtype = read(file)
            if any(length < 0 for length in shape):
                raise ValueError(f"the shape is {shape}")  # noqa: TRY301 - handled like errors of NumPy
        except Exception as error:  # NumPy parses the header as Python, which can fail in any way
            raise DataError(
                f"{source.name}: {source.size:,} bytes, not an .npy file ({error})"
            ) from error
        start = file.tell()
    expected = start - source.offset + math.prod(shape) * dtype.itemsize
    present = min(source.size, source.path.stat().st_size - source.offset)
    if present < expected:
        raise DataError(
            f"{source.name}: truncated: found {present:,} bytes, "
            f"expected {expected:,} for {shape} {dtype}. Download it again"
        )
    if dtype.hasobject:
        raise DataError(f"{source.name}: holds Python objects; expected numbers")
    if not math.prod(shape):
        raise DataError(f"{source.name}: an empty array, {shape}; expected at least one value")
    order: Literal["F", "C"] = "F" if by_column else "C"
    return np.memmap(source.path, dtype=dtype, mode="r", offset=start, shape=shape, order=order)


def _labels(source: Path, files: Mapping[str, ByteRange], classes: int) -> NDArray[np.int64]:
    file = _required(source, files, "labels.npy")
    found = map_npy(file)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise DataError(
            f"{file.name}: found {found.shape} {found.dtype}; expected (labels,) of integers"
        )
    labels = np.array(found, dtype=np.int64)
    check_labels(file.name, labels, classes)
    return labels


def _severities(files: Mapping[str, ByteRange], labels: int) -> tuple[int, ...]:
    """Return the severities of corruptions.json; a published set has no such file and all five."""
    if DESCRIPTION_FILE not in files:
        if labels % len(SEVERITIES):
            raise DataError(
                f"{files['labels.npy'].name}: {labels} labels; expected a multiple of 5, "
                f"one block per severity (a smaller set needs {DESCRIPTION_FILE})"
            )
        return SEVERITIES
    file = files[DESCRIPTION_FILE]
    text = file.read()
    try:
        about = json.loads(text)
        severities, images = tuple(map(int, about["severities"])), int(about["images"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{file.name}: found {text[:60]!r}; "
            'expected for example {"severities": [5], "images": 10000}'
        ) from error
    if not severities or len({*severities} & {*SEVERITIES}) < len(severities):
        raise DataError(f"{file.name}: severities {severities}; expected some of {SEVERITIES}")
    if len(severities) * images != labels:
        raise DataError(
            f"{files['labels.npy'].name}: {labels} labels; expected {len(severities)} severities x "
            f"{images} images = {len(severities) * images}, as in {DESCRIPTION_FILE}"
        )
    return severities


def _images(
    source: Path, files: Mapping[str, ByteRange], corruption: str, labels: int
) -> NDArray[np.uint8]:
    file = _required(source, files, f"{corruption}.npy")
    found = map_npy(file)
    expected = (labels, SIDE, SIDE, 3)
    if found.shape != expected or found.dtype != np.uint8:
        raise DataError(
            f"{file.name}: found {found.shape} {found.dtype}; "
            f"expected {expected} uint8, one image per label"
        )
    return found
