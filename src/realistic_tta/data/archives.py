"""The files of a folder or of a tar archive, by the last part of their name.

An archive is read from its beginning to its end and never past a limit, whatever its headers say:
a few kB of gzip can stand for gigabytes.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realistic_tta.errors import DataError

# What packed bytes may become: images hardly shrink (CIFAR-10's archive by a tenth), bombs a
# thousandfold.
MOST_TIMES, ROOM = 20, 64 << 20
MOST_MEMBERS = 2_000_000  # ImageNet-C's largest archive has a million images
PACKERS: dict[bytes, Callable[[Path], io.BufferedIOBase]] = {  # by the first bytes of a file
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
DAMAGES = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


@dataclass(frozen=True)
class Files:
    """What lies in `source`, a folder or an archive: last part of the name -> full name."""

    source: Path
    names: dict[str, str]

    def read(self, name: str) -> bytes:
        """The whole file."""
        if name not in self.names:
            raise DataError(
                f"{self.source}: {name} is missing; found {', '.join(sorted(self.names)) or 'none'}"
            )
        if self.source.is_dir():
            return (self.source / name).read_bytes()
        with open_tar(self.source) as tar:
            for member in members_of(tar, self.source):
                if member.name == self.names[name]:
                    file = tar.extractfile(member)
                    assert file is not None, "only regular files are listed"
                    return file.read()
        raise DataError(f"{self.source}: {name} has gone while it was read")

    def fingerprint(self) -> str:
        """Changes when a file of the source is exchanged; tells one decoded copy from another."""
        paths = [self.source]
        if self.source.is_dir():
            paths = [self.source / name for name in sorted(self.names)]
        facts = [(str(path.resolve()), *_size_and_time(path)) for path in paths]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def _size_and_time(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def list_files(source: Path) -> Files:
    """The files of a folder (not of its folders), or all of an archive."""
    if source.is_dir():
        return Files(source, {path.name: path.name for path in source.iterdir() if path.is_file()})
    with open_tar(source) as tar:
        names = [member.name for member in members_of(tar, source) if member.isfile()]
    return Files(source, {name.rsplit("/", 1)[-1]: name for name in names})


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """The archive, packed or not, to be read in order; whatever breaks inside is a DataError."""
    try:
        with _unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            yield tar
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file or folder") from error
    except DAMAGES as error:
        raise damaged(path, error) from error


def members_of(tar: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """One after another, not more than there may be, nor with a size that they cannot have."""
    room, count = limit(path), 0
    for member in tar:
        count, room = count + 1, room - member.size
        if member.size < 0:  # the next member would be one that was read already, for ever
            raise tarfile.ReadError(f"{member.name!r} has the size {member.size}")
        if count > MOST_MEMBERS:
            raise DataError(f"{path}: more than {MOST_MEMBERS:,} members; nothing was read")
        if room < 0:
            raise _bomb(path)
        tar.members = []  # type: ignore[attr-defined]  # they would fill the memory
        yield member


def limit(path: Path) -> int:
    """How many bytes an archive may become."""
    return MOST_TIMES * path.stat().st_size + ROOM


def _bomb(path: Path) -> DataError:
    return DataError(
        f"{path}: {path.stat().st_size:,} bytes that become more than {limit(path):,}; expected at "
        f"most {MOST_TIMES} times their size and {ROOM >> 20} MB. It is not what it says it is"
    )


def _unpacked(path: Path) -> io.BufferedReader:
    with path.open("rb") as file:
        begin = file.read(max(map(len, PACKERS)))
    packer = next((packer for magic, packer in PACKERS.items() if begin.startswith(magic)), None)
    return path.open("rb") if packer is None else io.BufferedReader(_Limited(packer(path), path))


class _Limited(io.RawIOBase):
    """A stream that ends with an error where it becomes too long."""

    def __init__(self, stream: io.BufferedIOBase, path: Path) -> None:
        self._stream, self._path, self._room = stream, path, limit(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._stream.read(len(buffer))
        self._room -= len(block)
        if self._room < 0:
            raise _bomb(self._path)
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._stream.close()
        super().close()


def damaged(path: Path, error: Exception) -> DataError:
    """The error for an archive that ends too early or is none."""
    if isinstance(error, DataError):  # it says more already
        return error
    return DataError(
        f"{path}: not a whole tar archive ({error}); found {path.stat().st_size:,} bytes. "
        "Delete it and fetch it again"
    )
