"""Reads the pickled batches of the official CIFAR archives without executing any code in them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError

from .archives import Files
from .images import Images

CIFAR10_BATCHES = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}


def read_cifar10_batches(files: Files, split: str) -> Images:
    """Read data_batch_1 to data_batch_5 or test_batch, and the class names from batches.meta."""
    return _join(files, CIFAR10_BATCHES[split], "labels", ("batches.meta", "label_names"))


def read_cifar100_batches(files: Files, split: str) -> Images:
    """Read train or test with the fine labels, and the class names from meta."""
    return _join(files, (split,), "fine_labels", ("meta", "fine_label_names"))


def _join(files: Files, names: tuple[str, ...], labels: str, meta: tuple[str, str]) -> Images:
    batches = [_read(files, name, ("data", labels)) for name in names]
    classes = _read(files, meta[0], (meta[1],))[meta[1]]
    if not isinstance(classes, list):
        raise DataError(f"{files.source}: {meta[0]} does not hold a list of names")
    return Images(
        np.concatenate([_to_images(files, batch["data"]) for batch in batches]),
        np.concatenate([_to_labels(files, batch[labels]) for batch in batches]),
        tuple(str(name) for name in classes),
    )


def _to_labels(files: Files, values: Any) -> NDArray[np.int64]:
    if not isinstance(values, list) or not all(
        type(value) is int and 0 <= value < 100 for value in values
    ):
        raise DataError(f"{files.source}: expected a list of labels from 0 to 99")
    return np.array(values, dtype=np.int64)


def _to_images(files: Files, rows: Any) -> NDArray[np.uint8]:
    """Convert rows of 1024 red, 1024 green and 1024 blue values to (image, 32, 32, 3)."""
    try:
        rows = rows.bytes()
    except Exception as error:  # a damaged pickle can hold anything
        raise DataError(
            f"{files.source}: batch data is not an array ({error}); expected (image, 3072) uint8"
        ) from error
    if rows.ndim != 2 or rows.shape[1] != 3072 or rows.dtype != np.uint8:
        raise DataError(
            f"{files.source}: batch data is {rows.shape} {rows.dtype}; expected (image, 3072) uint8"
        )
    planes = rows.reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _read(files: Files, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    packed = io.BytesIO(files.read(name))
    try:
        content = _ArraysOnly(packed, encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(
            f"{files.source}: {name} is not a CIFAR batch ({type(error).__name__}: {error}). "
            "Delete it and download it again"
        ) from error
    if not isinstance(content, dict) or not set(keys) <= set(content):
        found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise DataError(f"{files.source}: {name} holds {found}; expected {', '.join(keys)}")
    return content


class _DType:
    """Stands for the type of a pickled array; only uint8 is accepted."""

    def __init__(self, name: object = None, *_: object) -> None:
        self.name = name

    def __setstate__(self, _: object) -> None:
        """Ignore the byte order, which uint8 does not have."""


class _Array:
    """Stands for a pickled array. NumPy's own reader is avoided, because it trusts the content."""

    def __init__(self, *_: object) -> None:
        self.parts: Any = None

    def __setstate__(self, parts: object) -> None:
        self.parts = parts

    def bytes(self) -> NDArray[np.uint8]:
        """Return the array if its type is uint8."""
        _version, shape, dtype, by_column, content = self.parts
        if not isinstance(dtype, _DType) or dtype.name not in ("u1", "uint8"):
            raise ValueError("the array is not uint8")
        packed = content.encode("latin1") if isinstance(content, str) else content
        return np.frombuffer(packed, np.uint8).reshape(shape, order="F" if by_column else "C")


def _encode(text: str, _: str = "latin1") -> bytes:
    """Decode bytes that Python 3 pickled for Python 2."""
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle._Unpickler):  # noqa: SLF001 - eight bytes let the C version allocate all memory
    """Unpickles dicts, lists, numbers, strings and arrays; refuses anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it requires {module}.{name}; expected only arrays")
        return _ALLOWED[module, name]
