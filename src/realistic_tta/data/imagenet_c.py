"""ImageNet-C as published: corruption/severity/wnid/name.JPEG, 224 px, decoded when asked for.

Read from folders, or in place from the archives noise.tar, blur.tar, weather.tar, digital.tar
(imagenet_places.py). The images are 224 px already: they are never resized (resizing again costs
3 points of error).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError, unknown

from .cifar_c import Span, check_severity
from .decode import decode_rgb
from .imagenet_places import Folders, Found, Place, open_archives
from .registry import CORRUPTIONS, SEVERITIES

SIDE = 224
CLASSES = 1000


@dataclass(frozen=True, eq=False)
class JpegImages:
    """One corruption at one severity; the files are read by `take`."""

    spans: tuple[Span, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.spans)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The images of these numbers, in this order: (image, 224, 224, 3)."""
        images = np.empty((len(indices), SIDE, SIDE, 3), dtype=np.uint8)
        for row, index in enumerate(indices):
            images[row] = decode(self.spans[index])
        return images

    def digest(self) -> str:
        """SHA-256 of names, sizes and labels: the bytes themselves would take hours to read."""
        files = [(*Path(span.name).parts[-2:], span.size) for span in self.spans]
        return hashlib.sha256(repr((files, self.labels.tolist())).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class CorruptedFiles:
    """All parts of an ImageNet-C set; `part` gives one.

    listed: the images of every part, as wnid/name.JPEG; None: all that lie there
    class_index: wnid -> label; None: the place among the sorted wnids, of which there are 1000
    """

    source: Path
    place: Place
    corruptions: tuple[str, ...]
    listed: tuple[str, ...] | None = None
    class_index: Mapping[str, int] | None = None
    severities: tuple[int, ...] = SEVERITIES

    def part(self, corruption: str, severity: int) -> JpegImages:
        """The images of one corruption at one severity, in the order of the list."""
        if corruption not in self.corruptions:
            raise DataError(unknown("corruption", corruption, self.corruptions))
        check_severity(severity, self.severities)
        where = f"{self.source}: {corruption}/{severity}"
        found = self.place.find(corruption, severity, self.listed)
        if not found.wnids:
            raise DataError(f"{where}: no images found; expected wnid/name.JPEG")
        index = _class_index(where, found.wnids, self.class_index)
        chosen = _choose(where, found, self.listed)
        labels = np.array([index[path.split("/")[0]] for path in chosen], dtype=np.int64)
        classes = tuple(sorted(index, key=lambda wnid: index[wnid]))
        return JpegImages(tuple(found.images[path] for path in chosen), labels, classes)


def open_imagenet_c(
    source: Path,
    *,
    listed: Path | None = None,
    class_index: Mapping[str, int] | None = None,
    corruptions: Sequence[str] = CORRUPTIONS,
) -> CorruptedFiles:
    """The set in a folder of folders or of archives.

    Args:
        source: holds <corruption> folders, or group folders with them, or the .tar archives.
        listed: text file, one wnid/name.JPEG a line; by default all images.
        class_index: wnid -> label, where not all 1000 classes lie there.
        corruptions: which must be there.
    """
    if not source.is_dir():
        raise DataError(f"{source}: no such folder; expected ImageNet-C folders or archives in it")
    names = None if listed is None else read_list(listed)
    place = _place(source, corruptions, names)
    return CorruptedFiles(source, place, tuple(corruptions), names, class_index)


def _place(source: Path, corruptions: Sequence[str], names: tuple[str, ...] | None) -> Place:
    folders = Folders(source)
    missing = [name for name in corruptions if not folders.has(name)]
    if not missing:
        return folders
    if len(missing) < len(corruptions):
        raise DataError(f"{source}: the folder {missing[0]} is missing; others are there")
    return open_archives(source, corruptions, names)


def read_list(path: Path) -> tuple[str, ...]:
    """The images named in a text file, one a line, by their last two parts: wnid/name.JPEG."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a list of images, one a line")
    try:
        lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: no text ({error}); expected a list of images") from error
    names = tuple("/".join(words[0].split("/")[-2:]) for words in lines)
    for name in names:
        if name.count("/") != 1:
            raise DataError(f"{path}: found the line {name!r}; expected wnid/name.JPEG")
    if not names:
        raise DataError(f"{path}: the list is empty; expected wnid/name.JPEG, one a line")
    return names


def decode(span: Span) -> NDArray[np.uint8]:
    """(224, 224, 3)."""
    with span.path.open("rb") as file:
        file.seek(span.offset)
        content = file.read(span.size)
    return np.asarray(decode_rgb(content, span.name, (SIDE, SIDE)))


def _class_index(
    where: str, wnids: list[str], given: Mapping[str, int] | None
) -> Mapping[str, int]:
    if given is not None:
        unlisted = [wnid for wnid in wnids if wnid not in given]
        if unlisted:
            raise DataError(f"{where}: {unlisted[0]} is not in the class index given")
        return given
    if len(wnids) != CLASSES:
        raise DataError(
            f"{where}: {len(wnids)} classes; expected {CLASSES}, since a label is the place among "
            "all of them. Give the class index (wnid -> label) for a smaller set"
        )
    return {wnid: label for label, wnid in enumerate(wnids)}


def _choose(where: str, found: Found, listed: tuple[str, ...] | None) -> tuple[str, ...]:
    if listed is None:
        return tuple(sorted(found.images))
    missing = [path for path in listed if path not in found.images]
    if missing:
        raise DataError(
            f"{where}: {len(missing)} of {len(listed)} listed images are missing, "
            f"the first is {missing[0]}"
        )
    return listed
