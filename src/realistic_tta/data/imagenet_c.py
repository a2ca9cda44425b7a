"""Opens ImageNet-C as published: corruption/severity/wnid/name.JPEG, decoded on demand.

Images are read from folders, or in place from the archives noise.tar, blur.tar, weather.tar and
digital.tar. They have 224 px already and are never resized; resizing again costs 3 points of error.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError, unknown

from .archives import ByteRange, open_indexed_tar
from .cifar_c import ADVICE, check_severity
from .decode import decode_rgb
from .registry import CLEAN, CORRUPTIONS, SEVERITIES

SIDE = 224
CLASSES = 1000


@dataclass(frozen=True, eq=False)
class JpegImages:
    """One corruption at one severity; `take` reads the files."""

    files: tuple[ByteRange, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the images at these indices: (image, 224, 224, 3)."""
        images = np.empty((len(indices), SIDE, SIDE, 3), dtype=np.uint8)
        for row, index in enumerate(indices):
            file = self.files[index]
            images[row] = np.asarray(decode_rgb(file.read(), file.name, (SIDE, SIDE)))
        return images

    def digest(self) -> str:
        """Return the SHA-256 of names, sizes and labels. Reading all bytes would take hours."""
        files = [(*Path(file.name).parts[-2:], file.size) for file in self.files]
        return hashlib.sha256(repr((files, self.labels.tolist())).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class CorruptedFiles:
    """An ImageNet-C set; `part` returns one corruption at one severity.

    Attributes:
        index: finds the images.
        listed: the images of every part as wnid/name.JPEG, or None for all.
        class_index: wnid -> label, or None for the rank among the 1000 sorted wnids.
    """

    source: Path
    index: FolderIndex | ArchiveIndex
    corruptions: tuple[str, ...]
    listed: tuple[str, ...] | None = None
    class_index: Mapping[str, int] | None = None
    severities: tuple[int, ...] = SEVERITIES

    def part(self, corruption: str, severity: int) -> JpegImages:
        """Return the images of one corruption at one severity, in the order of the list."""
        if corruption not in self.corruptions:
            raise DataError(unknown("corruption", corruption, self.corruptions))
        check_severity(severity, self.severities)
        where = f"{self.source}: {corruption}/{severity}"
        found = self.index.find(corruption, severity, self.listed)
        if not found.wnids:
            raise DataError(f"{where}: no images found; expected wnid/name.JPEG")
        labels_by_wnid = _class_index(where, found.wnids, self.class_index)
        chosen = _choose(where, found, self.listed)
        labels = np.array([labels_by_wnid[path.split("/")[0]] for path in chosen], dtype=np.int64)
        classes = tuple(sorted(labels_by_wnid, key=lambda wnid: labels_by_wnid[wnid]))
        return JpegImages(tuple(found.images[path] for path in chosen), labels, classes)


def open_imagenet_c(
    source: Path,
    *,
    listed: Path | None = None,
    class_index: Mapping[str, int] | None = None,
    corruptions: Sequence[str] = CORRUPTIONS,
) -> CorruptedFiles:
    """Open a set in a folder of folders or of archives.

    Args:
        source: a folder with <corruption> folders, with group folders of them, or with the .tar
            archives.
        listed: text file with one wnid/name.JPEG per line; by default all images are used.
        class_index: wnid -> label; required if the set has fewer than 1000 classes.
        corruptions: the required corruptions.
    """
    if not source.is_dir():
        raise DataError(f"{source}: no such folder; expected ImageNet-C folders or archives in it")
    names = None if listed is None else read_list(listed)
    folders = FolderIndex(source)
    missing = [name for name in corruptions if not folders.has(name)]
    if 0 < len(missing) < len(corruptions):
        raise DataError(f"{source}: the folder {missing[0]} is missing; others are there")
    index = index_archives(source, corruptions, names) if missing else folders
    return CorruptedFiles(source, index, tuple(corruptions), names, class_index)


def read_list(path: Path) -> tuple[str, ...]:
    """Read a text file with one image per line and return each as wnid/name.JPEG."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a list of images, one per line")
    try:
        lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file ({error}); expected a list of images") from error
    names = tuple("/".join(words[0].split("/")[-2:]) for words in lines)
    for name in names:
        if name.count("/") != 1:
            raise DataError(f"{path}: found the line {name!r}; expected wnid/name.JPEG")
    if not names:
        raise DataError(f"{path}: the list is empty; expected wnid/name.JPEG, one per line")
    return names


class FoundImages(NamedTuple):
    """One corruption at one severity: wnid/name.JPEG -> file, and the wnids of all images."""

    images: dict[str, ByteRange]
    wnids: list[str]


@dataclass(frozen=True)
class FolderIndex:
    """Images in corruption/severity/wnid/name.JPEG, or in the same inside group folders."""

    source: Path

    def has(self, corruption: str) -> bool:
        """Return whether the corruption has a folder."""
        return bool(self._folders(corruption))

    def find(self, corruption: str, severity: int, listed: Collection[str] | None) -> FoundImages:
        """Return the images of a part that exist: all, or those listed.

        Only listed files are checked, because listing 50,000 files is slow.
        """
        folder = self._folders(corruption)[0] / str(severity)
        if not folder.is_dir():
            return FoundImages({}, [])
        wnids = sorted(path.name for path in folder.iterdir() if path.is_dir())
        if listed is None:
            paths = sorted(folder.glob("*/*.JPEG"))
        else:
            paths = [folder / name for name in listed if (folder / name).is_file()]
        images = {
            f"{path.parent.name}/{path.name}": ByteRange(path, 0, path.stat().st_size, str(path))
            for path in paths
        }
        return FoundImages(images, wnids)

    def _folders(self, corruption: str) -> list[Path]:
        candidates = [self.source / corruption, *sorted(self.source.glob(f"*/{corruption}"))]
        return [path for path in candidates if path.is_dir()]


class Member(NamedTuple):
    """Position of an image. A full set has 3.75 million of these, so they are kept small."""

    archive: Path
    offset: int
    size: int


@dataclass(frozen=True)
class ArchiveIndex:
    """Images in noise.tar, blur.tar, weather.tar and digital.tar, by (corruption, severity)."""

    members: dict[tuple[str, int], dict[str, Member]] = field(default_factory=dict)
    wnids: dict[tuple[str, int], set[str]] = field(default_factory=dict)

    def find(self, corruption: str, severity: int, listed: Collection[str] | None) -> FoundImages:
        """Return the images of a part that exist: all, or those listed."""
        present = self.members.get((corruption, severity), {})
        chosen = sorted(present) if listed is None else [name for name in listed if name in present]
        images = {
            name: ByteRange(
                *present[name], f"{present[name].archive}:{corruption}/{severity}/{name}"
            )
            for name in chosen
        }
        return FoundImages(images, sorted(self.wnids.get((corruption, severity), ())))

    def add(self, archive: Path, member: tarfile.TarInfo, wanted: frozenset[str] | None) -> None:
        """Add a member named .../corruption/severity/wnid/name, unless it is not wanted."""
        corruption, severity, wnid, name = member.name.split("/")[-4:]
        if not severity.isdecimal() or not name.endswith(".JPEG"):
            return
        part = (corruption, int(severity))
        self.wnids.setdefault(part, set()).add(sys.intern(wnid))
        image = sys.intern(f"{wnid}/{name}")  # the same string in all 75 parts
        if wanted is None or image in wanted:
            position = Member(archive, member.offset_data, member.size)
            self.members.setdefault(part, {})[image] = position


def index_archives(
    source: Path, corruptions: Sequence[str], listed: Collection[str] | None
) -> ArchiveIndex:
    """Read the headers of the archives and index the images of these corruptions."""
    paths = sorted(source.glob("*.tar"))
    index = ArchiveIndex()
    wanted = None if listed is None else frozenset(listed)
    for path in paths:
        with open_indexed_tar(path) as members:
            for member in members:
                names = member.name.split("/")[-4:]
                if member.isfile() and len(names) == 4 and names[0] in corruptions:
                    index.add(path, member, wanted)
    present = {corruption for corruption, _ in index.wnids}
    for name in corruptions:
        if name not in present:
            found = ", ".join([*sorted(present), *(path.name for path in paths)]) or "nothing"
            advice = f". {ADVICE}" if name == CLEAN else ""
            raise DataError(
                f"{source}: {name} is missing; found {found}. "
                f"Expected its folder, or the archive that holds it{advice}"
            )
    return index


def _class_index(
    where: str, wnids: list[str], given: Mapping[str, int] | None
) -> Mapping[str, int]:
    if given is not None:
        missing = [wnid for wnid in wnids if wnid not in given]
        if missing:
            raise DataError(f"{where}: {missing[0]} is not in the class index given")
        return given
    if len(wnids) != CLASSES:
        raise DataError(
            f"{where}: {len(wnids)} classes; expected {CLASSES}, because a label is the rank among "
            "all of them. Pass the class index (wnid -> label) for a smaller set"
        )
    return {wnid: label for label, wnid in enumerate(wnids)}


def _choose(where: str, found: FoundImages, listed: tuple[str, ...] | None) -> tuple[str, ...]:
    if listed is None:
        return tuple(sorted(found.images))
    missing = [path for path in listed if path not in found.images]
    if missing:
        raise DataError(
            f"{where}: {len(missing)} of {len(listed)} listed images are missing, "
            f"the first is {missing[0]}"
        )
    return listed
