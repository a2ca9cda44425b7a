"""The files of a folder or of a tar archive, by the last part of their name."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from realistic_tta.errors import DataError


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
        try:
            with open_tar(self.source) as tar:
                # Member after member: a compressed archive is slow to wind back.
                found = next(member for member in tar if member.name == self.names[name])
                file = tar.extractfile(found)
                assert file is not None, "only regular files are listed"
                return file.read()
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise damaged(self.source, error) from error

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
    try:
        with open_tar(source) as tar:
            names = [member.name for member in tar if member.isfile()]
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise damaged(source, error) from error
    return Files(source, {name.rsplit("/", 1)[-1]: name for name in names})


def open_tar(path: Path) -> tarfile.TarFile:
    """The archive, compressed or not."""
    try:
        return tarfile.open(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file or folder") from error
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> DataError:
    """The error for an archive that ends too early or is none."""
    return DataError(
        f"{path}: not a whole tar archive ({error}); found {path.stat().st_size:,} bytes. "
        "Delete it and fetch it again"
    )
