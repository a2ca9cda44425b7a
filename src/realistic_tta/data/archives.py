"""Reads files from folders and tar archives, and unpacks archives safely.

Archives come from the internet. They are read sequentially and never beyond a size limit, whatever
their headers claim: a few kB of gzip can expand to gigabytes.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from realistic_tta.errors import DataError

# Limit of the expanded size. Images hardly compress (CIFAR-10 by a tenth), bombs a thousandfold.
MAX_RATIO, ALLOWANCE = 20, 64 << 20
MAX_MEMBERS = 2_000_000  # the largest archive of ImageNet-C has a million images
MAX_DEPTH = 50  # nested folders; ImageNet-C has four
DECOMPRESSORS: dict[bytes, Callable[[Path], io.BufferedIOBase]] = {  # by the first bytes of a file
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
READ_ERRORS = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


class ByteRange(NamedTuple):
    """A whole file, or a member of an uncompressed archive."""

    path: Path
    offset: int
    size: int
    name: str  # for error messages

    def read(self) -> bytes:
        """Return the bytes."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True)
class Files:
    """The files of `source`, a folder or an archive; names: file name -> full name."""

    source: Path
    names: dict[str, str]

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
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
        raise DataError(f"{self.source}: {name} disappeared while the archive was read")

    def fingerprint(self) -> str:
        """Return a hash that changes when a file of the source is replaced."""
        paths = [self.source]
        if self.source.is_dir():
            paths = [self.source / name for name in sorted(self.names)]
        stats = [(str(path.resolve()), path.stat()) for path in paths]
        facts = [(name, found.st_size, found.st_mtime_ns) for name, found in stats]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def list_files(source: Path) -> Files:
    """List the files of a folder, without its subfolders, or all files of an archive."""
    if source.is_dir():
        return Files(source, {path.name: path.name for path in source.iterdir() if path.is_file()})
    with open_tar(source) as tar:
        names = [member.name for member in members_of(tar, source) if member.isfile()]
    return Files(source, {name.rsplit("/", 1)[-1]: name for name in names})


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive, compressed or not, for sequential reading; any failure is a DataError."""
    try:
        with _decompressed(path) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            yield tar
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file or folder") from error
    except READ_ERRORS as error:
        raise damaged_archive(path, error) from error


@contextmanager
def open_indexed_tar(path: Path) -> Iterator[Iterator[tarfile.TarInfo]]:
    """Open an uncompressed archive and yield its members, whose offsets can then be read."""
    try:
        if _decompressor(path) is not None:
            raise DataError(
                f"{path}: compressed, so single files cannot be read from it; "
                "unpack it into this folder (`rtta data unpack`, or tar -xf)"
            )
        with tarfile.open(path, "r:") as tar:
            yield members_of(tar, path)
    except READ_ERRORS as error:
        raise damaged_archive(path, error) from error


def members_of(tar: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the members, refusing impossible sizes and more members than allowed."""
    room, count = size_limit(path), 0
    for member in tar:
        count, room = count + 1, room - member.size
        if member.size < 0:  # reading would move backwards and never end
            raise tarfile.ReadError(f"{member.name!r} has the size {member.size}")
        if count > MAX_MEMBERS:
            raise DataError(f"{path}: more than {MAX_MEMBERS:,} members; nothing was read")
        if room < 0:
            raise _too_large(path)
        tar.members = []  # type: ignore[attr-defined]  # tarfile would keep all of them in memory
        yield member


def size_limit(path: Path) -> int:
    """Return the number of bytes an archive may expand to."""
    return MAX_RATIO * path.stat().st_size + ALLOWANCE


def unpack(archive: Path, folder: Path) -> None:
    """Extract all files and folders of an archive, or nothing.

    An archive with links, devices, names that lead outside the folder, or more bytes or members
    than the limits is refused. Members are first written to a hidden folder and moved when all are
    complete. Existing files stay, except for those of the same names.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{archive.name}.unpacked.partial"
        shutil.rmtree(temporary, ignore_errors=True)  # left by a killed process
        try:
            _extract(archive, temporary)
            _move(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{archive}: cannot be unpacked into {folder} ({error})") from error


def _extract(archive: Path, target: Path) -> None:
    target.mkdir()
    with open_tar(archive) as tar:
        for member in members_of(tar, archive):
            _check_member(archive, member)
            try:
                tar.extract(member, target, filter="data")
            except (tarfile.FilterError, OSError) as error:
                raise DataError(f"{archive}: cannot be unpacked ({error})") from error


def _check_member(archive: Path, member: tarfile.TarInfo) -> None:
    """Refuse what tarfile's filter accepts: links inside the folder, and absolute names."""
    if not (member.isreg() or member.isdir()):
        kind = "a link" if member.issym() or member.islnk() else "not a file"
        raise DataError(
            f"{archive}: cannot be unpacked: {member.name!r} is {kind}; "
            "expected files and folders only"
        )
    parts = member.name.split("/")
    if len(parts) > MAX_DEPTH:
        raise DataError(f"{archive}: cannot be unpacked: {len(parts)} nested folders")
    if member.name.startswith("/") or ".." in parts:
        raise DataError(
            f"{archive}: cannot be unpacked: {member.name!r} leads outside; "
            "expected names inside the archive's folder"
        )


def _move(source: Path, folder: Path) -> None:
    for path in sorted(source.rglob("*")):
        target = folder / path.relative_to(source)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            path.replace(target)


def _decompressor(path: Path) -> Callable[[Path], io.BufferedIOBase] | None:
    with path.open("rb") as file:
        start = file.read(max(map(len, DECOMPRESSORS)))
    return next((found for magic, found in DECOMPRESSORS.items() if start.startswith(magic)), None)


def _decompressed(path: Path) -> io.BufferedReader:
    decompress = _decompressor(path)
    if decompress is None:
        return path.open("rb")
    return io.BufferedReader(_Limited(decompress(path), path))


class _Limited(io.RawIOBase):
    """A stream that raises an error beyond the size limit."""

    def __init__(self, stream: io.BufferedIOBase, path: Path) -> None:
        self._stream, self._path, self._room = stream, path, size_limit(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._stream.read(len(buffer))
        self._room -= len(block)
        if self._room < 0:
            raise _too_large(self._path)
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _too_large(path: Path) -> DataError:
    return DataError(
        f"{path}: {path.stat().st_size:,} bytes that become more than {size_limit(path):,}; "
        f"expected at most {MAX_RATIO} times their size plus {ALLOWANCE >> 20} MB. "
        "Download it again from a source you trust"
    )


def damaged_archive(path: Path, error: Exception) -> DataError:
    """Return the error for a file that is truncated or is not an archive."""
    if isinstance(error, DataError):  # it is more specific
        return error
    return DataError(
        f"{path}: not a complete tar archive ({error}); found {path.stat().st_size:,} bytes. "
        "Delete it and download it again"
    )
