"""The file that holds what a method has learnt: tensors as safetensors, the rest as JSON in it.

methods/in_service.py writes it, methods/restore.py reads it. No pickle: reading executes nothing.
The checksum covers every byte of the file. It tells damage, not intent: who can write the file
can write a checksum, too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from realistic_tta.errors import StateError
from realistic_tta.storage import atomic_write

FORMAT = "realistic_tta state"
FORMAT_VERSION = 1
_BLANK = "0" * 64  # where the checksum stands, while it is made


@dataclass(frozen=True)
class Stored:
    """What a file holds; words is its JSON, by name."""

    tensors: Mapping[str, Tensor]
    words: Mapping[str, str]


def write_state(path: Path, stored: Stored) -> None:
    """Afterwards the file is whole; or, after a crash or an error, what it was before."""
    from safetensors.torch import save  # noqa: PLC0415 - importing the library needs torch alone

    if path.is_dir():
        raise StateError(f"{path} is a directory; expected the name of a file")
    about = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "checksum": _BLANK}
    content = bytearray(save(dict(stored.tensors), {**stored.words, **about}))
    place = content.index(_entry(_BLANK)) + len(_entry("")) - 1
    content[place : place + len(_BLANK)] = hashlib.sha256(content).hexdigest().encode()
    atomic_write(Path(os.path.realpath(path)), content)  # where a link leads; the link stays


def read_state(path: Path) -> Stored:
    """The file's content, if every byte is as it was written."""
    from safetensors.torch import load  # noqa: PLC0415 - as above

    if path.is_dir():
        raise StateError(f"{path} is a directory; expected a file that adapted.save() has written")
    content = path.read_bytes()
    words = _words(path, content)
    if words.get("format_version") != str(FORMAT_VERSION):
        raise StateError(
            f"{path} has format version {words.get('format_version')}; this version of the library "
            f"reads {FORMAT_VERSION}. Read it with the version that wrote it, "
            f"{words.get('package_version')}"
        )
    if not _is_whole(content, words.get("checksum", "")):
        raise StateError(f"{path} is damaged: its checksum is not that of its content")
    return Stored(load(content), words)


def _words(path: Path, content: bytes) -> dict[str, str]:
    """The JSON of a safetensors file: 8 bytes say how long the header is, which says all else."""
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        header: Any = json.loads(content[8:end]) if end <= len(content) else None
        words = header.pop("__metadata__")
        length = max([end + tensor["data_offsets"][1] for tensor in header.values()], default=end)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        words, length = None, 0
    if not isinstance(words, dict) or words.get("format") != FORMAT:
        raise StateError(
            f"{path} is not a state that adapted.save() has written, or its beginning is damaged"
        )
    if len(content) < length:
        raise StateError(f"{path} is truncated: {len(content)} bytes of {length}")
    return words


def _is_whole(content: bytes, checksum: str) -> bool:
    place = content.find(_entry(checksum))
    if place < 0 or len(checksum) != len(_BLANK):
        return False
    place += len(_entry("")) - 1
    digest = hashlib.sha256(content[:place])
    digest.update(_BLANK.encode())
    digest.update(content[place + len(_BLANK) :])
    return digest.hexdigest() == checksum


def _entry(checksum: str) -> bytes:
    """As it stands in the header."""
    return f'"checksum":"{checksum}"'.encode()
