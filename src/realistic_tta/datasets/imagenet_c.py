"""ImageNet-C as published: corruption/severity/wnid/name.JPEG, 224 px, decoded when asked for.

Read from folders, or in place from the archives noise.tar, blur.tar, weather.tar, digital.tar. The
images are 224 px already: they are never resized (resizing again costs 3 points of error).
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from realistic_tta.errors import DataError, unknown

from .catalogue import CORRUPTIONS, SEVERITIES
from .files import damaged
from .stored import Span, check_severity

SIDE = 224
CLASSES = 1000
GZIP = b"\x1f\x8b"

Part = tuple[str, int]  # corruption, severity
Found = dict[str, Span]  # wnid/name.JPEG -> where it lies


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


@dataclass(frozen=True, eq=False)
class CorruptedFiles:
    """All parts of an ImageNet-C set; `part` gives one.

    listed: the images of every part, as wnid/name.JPEG; None: all that lie there
    class_index: wnid -> label; None: the place among the sorted wnids, of which there are 1000
    """

    source: Path
    corruptions: tuple[str, ...]
    listed: tuple[str, ...] | None = None
    class_index: Mapping[str, int] | None = None
    archived: dict[Part, Found] | None = None  # of archives; folders are listed when asked for
    severities: tuple[int, ...] = SEVERITIES

    def part(self, corruption: str, severity: int) -> JpegImages:
        """The images of one corruption at one severity, in the order of the list."""
        if corruption not in self.corruptions:
            raise DataError(unknown("corruption", corruption, self.corruptions))
        check_severity(severity, self.severities)
        where = f"{self.source}: {corruption}/{severity}"
        if self.archived is None:
            found = _list_folder(_folder_of(self.source, corruption) / str(severity))
        else:
            found = self.archived.get((corruption, severity), {})
        if not found:
            raise DataError(f"{where}: no images found; expected wnid/name.JPEG")
        index = _class_index(where, found, self.class_index)
        chosen = _choose(where, found, self.listed)
        labels = np.array([index[path.split("/")[0]] for path in chosen], dtype=np.int64)
        classes = tuple(sorted(index, key=lambda wnid: index[wnid]))
        return JpegImages(tuple(found[path] for path in chosen), labels, classes)


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
    missing = [name for name in corruptions if not _has_folder(source, name)]
    archived = None
    if missing and len(missing) == len(corruptions):
        archived = _read_archives(source, corruptions)
    elif missing:
        raise DataError(f"{source}: the folder {missing[0]} is missing; others are there")
    names = None if listed is None else read_list(listed)
    return CorruptedFiles(source, tuple(corruptions), names, class_index, archived)


def read_list(path: Path) -> tuple[str, ...]:
    """The images named in a text file, one a line, by their last two parts: wnid/name.JPEG."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a list of images, one a line")
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
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
    try:
        with Image.open(io.BytesIO(content)) as picture:
            image = np.asarray(picture.convert("RGB"))
    except OSError as error:
        raise DataError(
            f"{span.name}: {len(content):,} bytes are no whole JPEG ({error})"
        ) from error
    if image.shape != (SIDE, SIDE, 3):
        raise DataError(
            f"{span.name}: {image.shape[1]} x {image.shape[0]} pixels; expected {SIDE} x {SIDE}"
        )
    return image


def _has_folder(source: Path, corruption: str) -> bool:
    return any(path.is_dir() for path in _candidates(source, corruption))


def _folder_of(source: Path, corruption: str) -> Path:
    return next(path for path in _candidates(source, corruption) if path.is_dir())


def _candidates(source: Path, corruption: str) -> list[Path]:
    """Beside the others, or inside its group: noise/gaussian_noise."""
    return [source / corruption, *sorted(source.glob(f"*/{corruption}"))]


def _list_folder(folder: Path) -> Found:
    return {
        f"{path.parent.name}/{path.name}": Span(path, 0, path.stat().st_size, str(path))
        for path in sorted(folder.glob("*/*.JPEG"))
    }


def _read_archives(source: Path, corruptions: Sequence[str]) -> dict[Part, Found]:
    archives = sorted(source.glob("*.tar"))
    parts: dict[Part, Found] = {}
    for archive in archives:
        _index_archive(archive, parts)
    there = {corruption for corruption, _ in parts}
    for name in corruptions:
        if name not in there:
            found = ", ".join([*sorted(there), *(path.name for path in archives)]) or "nothing"
            raise DataError(
                f"{source}: {name} is missing; found {found}. "
                "Expected its folder, or the archive that holds it"
            )
    return parts


def _index_archive(archive: Path, parts: dict[Part, Found]) -> None:
    """Notes where each image begins, in an archive that can be read from anywhere."""
    with archive.open("rb") as file:
        if file.read(2) == GZIP:
            raise DataError(
                f"{archive}: compressed, so that single images cannot be read from it; "
                "unpack it into this folder (`rtta data unpack imagenet-c`, or tar -xf)"
            )
    try:
        with tarfile.open(archive, "r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # 750,000 would fill the memory
                _note(archive, member, parts)
    except tarfile.TarError as error:
        raise damaged(archive, error) from error


def _note(archive: Path, member: tarfile.TarInfo, parts: dict[Part, Found]) -> None:
    names = member.name.split("/")[-4:]  # corruption, severity, wnid, name
    if not member.isfile() or len(names) < 4 or not names[1].isdigit():
        return
    corruption, severity, wnid, name = names
    span = Span(archive, member.offset_data, member.size, f"{archive}:{member.name}")
    parts.setdefault((corruption, int(severity)), {})[f"{wnid}/{name}"] = span


def _class_index(where: str, found: Found, given: Mapping[str, int] | None) -> Mapping[str, int]:
    wnids = sorted({path.split("/")[0] for path in found})
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
        return tuple(sorted(found))
    missing = [path for path in listed if path not in found]
    if missing:
        raise DataError(
            f"{where}: {len(missing)} of {len(listed)} listed images are missing, "
            f"the first is {missing[0]}; found {len(found)} images"
        )
    return listed
