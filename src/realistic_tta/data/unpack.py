"""Extracts archives that come from elsewhere: all that is in them, inside the folder, or nothing.

Members are written into a hidden folder first and moved when every one of them was good.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from realistic_tta.errors import DataError

from .archives import members_of, open_tar

DEEPEST = 50  # folders in folders; ImageNet-C has four


def unpack(archive: Path, folder: Path) -> None:
    """Extracts regular files and folders; an archive with anything else is refused whole.

    Links, devices, names that lead outside, and more bytes or members than files.py allows are
    refused. What lies in the folder already stays, but for files of the same names.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f".{archive.name}.unpacked.partial"
        shutil.rmtree(place, ignore_errors=True)  # a kill may have left one
        try:
            _extract(archive, place)
            _move(place, folder)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{archive}: cannot be unpacked into {folder} ({error})") from error


def _extract(archive: Path, place: Path) -> None:
    place.mkdir()
    with open_tar(archive) as tar:
        for member in members_of(tar, archive):
            _check(archive, member)
            try:
                tar.extract(member, place, filter="data")
            except (tarfile.FilterError, OSError) as error:
                raise DataError(f"{archive}: cannot be unpacked ({error})") from error


def _check(archive: Path, member: tarfile.TarInfo) -> None:
    """What the filter would let pass: links inside the folder, and names cut of their slash."""
    if not (member.isreg() or member.isdir()):
        kind = "a link" if member.issym() or member.islnk() else "no file"
        raise DataError(
            f"{archive}: cannot be unpacked: {member.name!r} is {kind}; "
            "expected files and folders only"
        )
    parts = member.name.split("/")
    if len(parts) > DEEPEST:
        raise DataError(f"{archive}: cannot be unpacked: folders in {len(parts)} folders")
    if member.name.startswith("/") or ".." in parts:
        raise DataError(
            f"{archive}: cannot be unpacked: {member.name!r} leads outside; "
            "expected names inside the archive's folder"
        )


def _move(place: Path, folder: Path) -> None:
    for path in sorted(place.rglob("*")):
        target = folder / path.relative_to(place)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            path.replace(target)
