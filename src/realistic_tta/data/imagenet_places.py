"""Where the images of ImageNet-C lie: in folders, or inside uncompressed tar archives.

Either place answers one question, `find`. Used by imagenet_c.py.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from realistic_tta.errors import DataError

from .archives import DAMAGES, damaged, members_of
from .cifar_c import Span

GZIP = b"\x1f\x8b"


class Found(NamedTuple):
    """One corruption at one severity: wnid/name.JPEG -> its bytes, and the wnids of all images."""

    images: dict[str, Span]
    wnids: list[str]


class Place(Protocol):
    """What holds the images."""

    def find(self, corruption: str, severity: int, listed: Collection[str] | None) -> Found:
        """The images of a part, all or those listed, as far as they are there."""


@dataclass(frozen=True)
class Folders:
    """corruption/severity/wnid/name.JPEG, or the same inside group folders."""

    source: Path

    def has(self, corruption: str) -> bool:
        """Whether the corruption has a folder."""
        return bool(self._folders(corruption))

    def find(self, corruption: str, severity: int, listed: Collection[str] | None) -> Found:
        """Looks for the listed files only, since listing 50,000 takes its time."""
        folder = self._folders(corruption)[0] / str(severity)
        if not folder.is_dir():
            return Found({}, [])
        wnids = sorted(path.name for path in folder.iterdir() if path.is_dir())
        if listed is None:
            paths = sorted(folder.glob("*/*.JPEG"))
        else:
            paths = [folder / name for name in listed if (folder / name).is_file()]
        images = {
            f"{path.parent.name}/{path.name}": Span(path, 0, path.stat().st_size, str(path))
            for path in paths
        }
        return Found(images, wnids)

    def _folders(self, corruption: str) -> list[Path]:
        candidates = [self.source / corruption, *sorted(self.source.glob(f"*/{corruption}"))]
        return [path for path in candidates if path.is_dir()]


class Member(NamedTuple):
    """Where an image begins; a full set has 3.75 million of these, so no more than that."""

    archive: Path
    offset: int
    size: int


@dataclass(frozen=True)
class Archives:
    """What lies in noise.tar, blur.tar, weather.tar and digital.tar, read in place."""

    members: dict[tuple[str, int], dict[str, Member]] = field(default_factory=dict)
    wnids: dict[tuple[str, int], set[str]] = field(default_factory=dict)

    def find(self, corruption: str, severity: int, listed: Collection[str] | None) -> Found:
        """From the index made when the archives were opened."""
        there = self.members.get((corruption, severity), {})
        chosen = sorted(there) if listed is None else [name for name in listed if name in there]
        images = {
            name: Span(*there[name], f"{there[name].archive}:{corruption}/{severity}/{name}")
            for name in chosen
        }
        return Found(images, sorted(self.wnids.get((corruption, severity), ())))


def open_archives(
    source: Path, corruptions: Sequence[str], listed: Collection[str] | None
) -> Archives:
    """Notes where the images of these corruptions begin, all or those listed."""
    paths = sorted(source.glob("*.tar"))
    index = Archives()
    wanted = None if listed is None else frozenset(listed)
    for path in paths:
        _refuse_compressed(path)
        _read_headers(path, index, frozenset(corruptions), wanted)
    there = {corruption for corruption, _ in index.wnids}
    for name in corruptions:
        if name not in there:
            found = ", ".join([*sorted(there), *(path.name for path in paths)]) or "nothing"
            raise DataError(
                f"{source}: {name} is missing; found {found}. "
                "Expected its folder, or the archive that holds it"
            )
    return index


def _refuse_compressed(archive: Path) -> None:
    with archive.open("rb") as file:
        if file.read(2) == GZIP:
            raise DataError(
                f"{archive}: compressed, so that single images cannot be read from it; "
                "unpack it into this folder (`rtta data unpack imagenet-c`, or tar -xf)"
            )


def _read_headers(
    archive: Path, index: Archives, corruptions: frozenset[str], wanted: frozenset[str] | None
) -> None:
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in members_of(tar, archive):
                names = member.name.split("/")[-4:]  # corruption, severity, wnid, name
                if member.isfile() and len(names) == 4 and names[0] in corruptions:
                    _note(archive, member, names, index, wanted)
    except DAMAGES as error:
        raise damaged(archive, error) from error


def _note(
    archive: Path,
    member: tarfile.TarInfo,
    names: list[str],
    index: Archives,
    wanted: frozenset[str] | None,
) -> None:
    corruption, severity, wnid, name = names
    if not severity.isdecimal() or not name.endswith(".JPEG"):
        return
    part = (corruption, int(severity))
    index.wnids.setdefault(part, set()).add(sys.intern(wnid))
    image = sys.intern(f"{wnid}/{name}")  # the same in all 75 parts
    if wanted is None or image in wanted:
        place = Member(archive, member.offset_data, member.size)
        index.members.setdefault(part, {})[image] = place
