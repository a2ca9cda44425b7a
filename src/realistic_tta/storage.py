"""The files this library writes: atomic writes, tensor files with a checksum, and model hashes.

`atomic_write` is used for every file. `write_tensors` and `read_tensors` are the one checkpoint
format: safetensors with string metadata. No pickle is involved, so reading executes nothing. The
checksum covers every byte of the file. It detects damage, not tampering.

Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realistic_tta.errors import StateError

if TYPE_CHECKING:
    from torch import Tensor, nn

FORMAT = "realistic_tta"
FORMAT_VERSION = 1
PARTIAL = ".partial"  # suffix of a file that is being written
_BLANK = "0" * 64  # placeholder for the checksum while it is computed
_RESERVED = ("format", "format_version", "package_version", "kind", "checksum")
_WRAPPERS = ("module", "_orig_mod")  # name parts added by DataParallel and torch.compile


def atomic_write(path: Path, content: bytes | bytearray | memoryview) -> None:
    """Write a file so that it is either complete or unchanged, even after a crash.

    The content goes to a temporary file in the same folder, which is synced and renamed. A symbolic
    link is followed and stays a link. An existing file keeps its mode; a new one honors the umask.

    Raises:
        StateError: `path` is a directory, a FIFO, a device or a socket.
        OSError: the file cannot be written, for example because the disk is full.
    """
    target = Path(os.path.realpath(path))
    mode = _mode_of_regular_file(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        with temporary.open("xb") as file:
            if mode is not None:
                temporary.chmod(mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    _sync_folder(target.parent)


def leftovers(path: Path) -> list[Path]:
    """Return the temporary files of `path` left by processes that were killed while writing it."""
    target = Path(os.path.realpath(path))
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}{re.escape(PARTIAL)}")
    if not target.parent.is_dir():
        return []
    return [found for found in target.parent.iterdir() if name.fullmatch(found.name)]


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], *, kind: str = "state"
) -> None:
    """Write named tensors and string metadata to one safetensors file, atomically.

    Args:
        path: the file to write or replace.
        tensors: tensors by name, on any device; they may share memory.
        metadata: strings by name. The names format, format_version, package_version, kind and
            checksum are reserved.
        kind: purpose of the file, such as "state" or "training"; `read_tensors` compares it.

    Raises:
        StateError: a value is not a tensor, has a type that safetensors lacks, or `path` is not a
            regular file.
    """
    from safetensors.torch import save  # noqa: PLC0415 - importing the library requires only torch

    _mode_of_regular_file(path)
    header = {
        **metadata,
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "package_version": _package_version(),
        "kind": kind,
        "checksum": _BLANK,
    }
    try:
        content = bytearray(
            save({name: _copy(name, value) for name, value in tensors.items()}, header)
        )
    except StateError:
        raise
    except Exception as error:  # the exceptions of safetensors depend on its version
        raise StateError(
            f"{path} cannot be written as safetensors ({type(error).__name__}: {error}); expected "
            "dense tensors of a common type and string metadata"
        ) from error
    start = content.index(_checksum_entry(_BLANK)) + len(_checksum_entry("")) - 1
    content[start : start + len(_BLANK)] = hashlib.sha256(content).hexdigest().encode()
    atomic_write(path, content)


def read_tensors(path: Path, *, kind: str = "state") -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a file that `write_tensors` wrote.

    Raises:
        StateError: the file is damaged, truncated, of another kind, format or version, or is not a
            regular file.
        FileNotFoundError: there is no such file.
    """
    from safetensors.torch import load  # noqa: PLC0415 - as above

    if _mode_of_regular_file(path) is None:
        raise FileNotFoundError(f"{path} does not exist; expected a file written by this library")
    content = path.read_bytes()
    metadata = _metadata(path, content)
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise StateError(
            f"{path} has format version {metadata.get('format_version')}; this version of the "
            f"library reads {FORMAT_VERSION}. Read it with version "
            f"{metadata.get('package_version')}, which wrote it"
        )
    if not _checksum_matches(content, metadata.get("checksum", "")):
        raise StateError(
            f"{path} is damaged: its content does not match its checksum. Restore it from a copy"
        )
    if metadata.get("kind") != kind:
        raise StateError(
            f'{path} is a file of kind "{metadata.get("kind")}"; expected "{kind}". '
            "Check the file name"
        )
    try:
        tensors = load(content)
    except Exception as error:  # a valid checksum does not imply a valid header
        raise StateError(
            f"{path} is not a valid safetensors file ({type(error).__name__}: {error}). "
            "Restore it from a copy"
        ) from error
    return tensors, {name: metadata[name] for name in metadata if name not in _RESERVED}


def model_hash(model: nn.Module) -> str:
    """Return the SHA-256 of the names, types, shapes and values of all parameters and buffers.

    The hash does not depend on the device, the memory layout, or wrapping by DataParallel or
    torch.compile.
    """
    tensors: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    tensors |= dict(model.named_buffers(remove_duplicate=False))
    return tensors_hash(
        {
            ".".join(part for part in name.split(".") if part not in _WRAPPERS): tensor
            for name, tensor in tensors.items()
        }
    )


def tensors_hash(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the names, types, shapes and values of tensors, in any order."""
    import torch  # noqa: PLC0415 - this module is imported where torch is not needed

    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {list(values.shape)}\n".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _mode_of_regular_file(path: Path) -> int | None:
    """Return the permission bits, or None if there is no such file; refuse everything else."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise StateError(f"{path} is a directory; expected the name of a file")
    if not stat.S_ISREG(mode):
        raise StateError(f"{path} is not a regular file; expected a file, not a pipe or a device")
    return stat.S_IMODE(mode)


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new file name survives a power cut."""
    if os.name == "nt":
        return  # Windows cannot open folders
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy(name: str, value: Any) -> Tensor:
    """Return a contiguous copy on the CPU: safetensors refuses tensors that share memory."""
    import torch  # noqa: PLC0415 - as in tensors_hash

    if name == "__metadata__":
        raise StateError('"__metadata__" is reserved by safetensors; rename the tensor')
    if not isinstance(value, torch.Tensor):
        raise StateError(
            f'"{name}" is of type {type(value).__name__}; expected a tensor. Store other values '
            "with torch.save in a file of your own"
        )
    return value.detach().to("cpu", memory_format=torch.contiguous_format, copy=True)


def _package_version() -> str:
    try:
        return version("realistic-tta")
    except PackageNotFoundError:  # run from the source tree
        return "unknown"


def _metadata(path: Path, content: bytes) -> dict[str, str]:
    """Parse the header of a safetensors file: 8 bytes of header length, then JSON."""
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        header: Any = json.loads(content[8:end].decode()) if end <= len(content) else None
        metadata = header.pop("__metadata__")
        length = max([end + tensor["data_offsets"][1] for tensor in header.values()], default=end)
        truncated = bool(len(content) < length)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        metadata = None
    if (
        not isinstance(metadata, dict)
        or not all(isinstance(value, str) for value in metadata.values())
        or metadata.get("format") != FORMAT
    ):
        raise StateError(
            f"{path} is not a file of this library, or its header is damaged; expected a file that "
            "save() wrote. Restore it from a copy"
        )
    if truncated:
        raise StateError(
            f"{path} is truncated: {len(content)} bytes, expected {length}. Restore it from a copy"
        )
    return metadata


def _checksum_matches(content: bytes, checksum: str) -> bool:
    try:
        entry = _checksum_entry(checksum)
    except UnicodeEncodeError:
        return False
    start = content.find(entry)
    if start < 0 or len(checksum) != len(_BLANK):
        return False
    start += len(_checksum_entry("")) - 1
    digest = hashlib.sha256(content[:start])
    digest.update(_BLANK.encode())
    digest.update(content[start + len(_BLANK) :])
    return digest.hexdigest() == checksum


def _checksum_entry(checksum: str) -> bytes:
    """Return the checksum as it appears in the header."""
    return f'"checksum":"{checksum}"'.encode()
