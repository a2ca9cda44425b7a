"""A file is written under another name, synced and renamed: it is whole, or it is not there.

Used by results.py and methods/state_file.py, however many processes write at once.
"""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from pathlib import Path

PARTIAL = ".partial"  # how the name of a file ends while it is written


def atomic_write(path: Path, content: bytes | bytearray) -> None:
    """Afterwards `path` holds all of it; or, after an error or a power cut, what it held before."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
    _sync_folder(path.parent)


def leftovers(path: Path) -> list[Path]:
    """What processes that were killed while they wrote `path` have left: hidden, read by nobody."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"))


def _sync_folder(folder: Path) -> None:
    """So that the new name, too, outlives a power cut."""
    if os.name == "nt":
        return  # there a folder cannot be opened
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
