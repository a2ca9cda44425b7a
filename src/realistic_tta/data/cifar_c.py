"""CIFAR-10-C and CIFAR-100-C as published: one .npy a corruption, memory-mapped.

A file holds severities 1 to 5 in blocks of as many images; labels.npy goes with each of them. They
are read from a folder or in place from the published .tar. A smaller set of the same layout, as
`rtta corrupt` writes it, says in corruptions.json which severities and how many images it has.
"""

from __future__ import annotations

import json
import math
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError, unknown

from .archives import DAMAGES, damaged, members_of
from .images import Images, check_labels
from .registry import CORRUPTIONS, SEVERITIES

ABOUT = "corruptions.json"
SIDE = 32


class Span(NamedTuple):
    """Bytes of a file: a whole one, or a member inside an uncompressed archive."""

    path: Path
    offset: int
    size: int
    name: str  # for errors


@dataclass(frozen=True, eq=False)
class CorruptedArrays:
    """All parts of a CIFAR-C set; `part` gives one.

    arrays: corruption -> (severity x image, 32, 32, 3) uint8, still on disk
    labels: (severity x image,) int64
    """

    arrays: Mapping[str, NDArray[np.uint8]]
    labels: NDArray[np.int64]
    severities: tuple[int, ...]
    classes: tuple[str, ...]

    def part(self, corruption: str, severity: int) -> Images:
        """The images of one corruption at one severity, in file order."""
        if corruption not in self.arrays:
            raise DataError(unknown("corruption", corruption, self.arrays))
        check_severity(severity, self.severities)
        images = len(self.labels) // len(self.severities)
        start = self.severities.index(severity) * images
        block = slice(start, start + images)
        return Images(self.arrays[corruption][block], self.labels[block], self.classes)


def check_severity(severity: int, known: tuple[int, ...]) -> None:
    """Raises unless the set has this severity."""
    if severity not in known:
        raise DataError(f"severity {severity} is not in this set; expected one of {known}")


def open_cifar_c(
    source: Path, classes: Sequence[str], *, corruptions: Sequence[str] = CORRUPTIONS
) -> CorruptedArrays:
    """The set in a folder or in the published archive; every file is checked, none is read.

    Args:
        source: a folder with <corruption>.npy and labels.npy, a folder with just that folder or
            archive inside, or the archive.
        classes: names by label.
        corruptions: which must be there.
    """
    source = _locate(source)
    spans = _in_folder(source) if source.is_dir() else _in_archive(source)
    labels = _labels(source, spans, len(classes))
    severities = _severities(source, spans, len(labels))
    arrays = {name: _images(source, spans, name, len(labels)) for name in corruptions}
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


def _in_folder(folder: Path) -> dict[str, Span]:
    paths = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: Span(path, 0, path.stat().st_size, str(path)) for path in paths}


def _in_archive(path: Path) -> dict[str, Span]:
    """Where the members begin; nothing is unpacked."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = [member for member in members_of(tar, path) if member.isfile()]
    except DAMAGES as error:
        raise damaged(path, error) from error
    return {
        member.name.rsplit("/", 1)[-1]: Span(
            path, member.offset_data, member.size, f"{path}:{member.name}"
        )
        for member in members
    }


def _span(source: Path, spans: Mapping[str, Span], name: str) -> Span:
    if name not in spans:
        raise DataError(
            f"{source}: {name} is missing; found {', '.join(sorted(spans)) or 'no file'}"
        )
    return spans[name]


def map_npy(span: Span) -> NDArray[Any]:
    """The array in these bytes, memory-mapped."""
    with span.path.open("rb") as file:
        file.seek(span.offset)
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, by_column, dtype = read(file)
            if any(length < 0 for length in shape):
                raise ValueError(f"the shape is {shape}")  # noqa: TRY301 - as what NumPy refuses
        except Exception as error:  # NumPy reads the header as Python, which can fail in any way
            raise DataError(f"{span.name}: {span.size:,} bytes, no .npy file ({error})") from error
        start = file.tell()
    expected = start - span.offset + math.prod(shape) * dtype.itemsize
    present = min(span.size, span.path.stat().st_size - span.offset)
    if present < expected:
        raise DataError(
            f"{span.name}: truncated: found {present:,} bytes, "
            f"expected {expected:,} for {shape} {dtype}. Fetch it again"
        )
    if dtype.hasobject:
        raise DataError(f"{span.name}: holds Python objects; expected numbers")
    if not math.prod(shape):
        raise DataError(f"{span.name}: an empty array, {shape}; expected at least one value")
    order: Literal["F", "C"] = "F" if by_column else "C"
    return np.memmap(span.path, dtype=dtype, mode="r", offset=start, shape=shape, order=order)


def _labels(source: Path, spans: Mapping[str, Span], classes: int) -> NDArray[np.int64]:
    span = _span(source, spans, "labels.npy")
    found = map_npy(span)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise DataError(
            f"{span.name}: found {found.shape} {found.dtype}; expected (labels,) of whole numbers"
        )
    labels = np.array(found, dtype=np.int64)
    check_labels(span.name, labels, classes)
    return labels


def _severities(source: Path, spans: Mapping[str, Span], labels: int) -> tuple[int, ...]:
    """What corruptions.json says; the published sets have none, and all five."""
    if ABOUT not in spans:
        if labels % len(SEVERITIES):
            raise DataError(
                f"{spans['labels.npy'].name}: {labels} labels; expected a multiple of 5, "
                f"one block a severity (a set with fewer says so in {ABOUT})"
            )
        return SEVERITIES
    span = _span(source, spans, ABOUT)
    with span.path.open("rb") as file:
        file.seek(span.offset)
        text = file.read(span.size)
    try:
        about = json.loads(text)
        severities, images = tuple(map(int, about["severities"])), int(about["images"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{span.name}: found {text[:60]!r}; "
            'expected {"severities": [5], "images": 10000} or the like'
        ) from error
    if (
        not severities
        or len(set(severities)) < len(severities)
        or not {*severities} <= {*SEVERITIES}
    ):
        raise DataError(f"{span.name}: severities {severities}; expected some of {SEVERITIES}")
    if len(severities) * images != labels:
        raise DataError(
            f"{spans['labels.npy'].name}: {labels} labels; expected {len(severities)} severities x "
            f"{images} images = {len(severities) * images}, as {ABOUT} says"
        )
    return severities


def _images(
    source: Path, spans: Mapping[str, Span], corruption: str, labels: int
) -> NDArray[np.uint8]:
    span = _span(source, spans, f"{corruption}.npy")
    found = map_npy(span)
    expected = (labels, SIDE, SIDE, 3)
    if found.shape != expected or found.dtype != np.uint8:
        raise DataError(
            f"{span.name}: found {found.shape} {found.dtype}; "
            f"expected {expected} uint8, one image a label"
        )
    return found
