"""The official CIFAR archives: pickled batches, read without running what a pickle may hold."""

from __future__ import annotations

import codecs
import io
import pickle
from typing import Any

import numpy as np

from realistic_tta.errors import DataError

from .files import Files
from .images import Images

CIFAR10_BATCHES = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}


def read_cifar10_batches(files: Files, split: str) -> Images:
    """data_batch_1 to data_batch_5 or test_batch; class names from batches.meta."""
    return _join(files, CIFAR10_BATCHES[split], "labels", ("batches.meta", "label_names"))


def read_cifar100_batches(files: Files, split: str) -> Images:
    """Train or test, the fine labels; class names from meta."""
    return _join(files, (split,), "fine_labels", ("meta", "fine_label_names"))


def _join(files: Files, names: tuple[str, ...], labels: str, meta: tuple[str, str]) -> Images:
    batches = [_read(files, name, ("data", labels)) for name in names]
    classes = _read(files, meta[0], (meta[1],))[meta[1]]
    return Images(
        np.concatenate([_to_images(files, batch["data"]) for batch in batches]),
        np.concatenate([np.asarray(batch[labels], dtype=np.int64) for batch in batches]),
        tuple(str(name) for name in classes),
    )


def _to_images(files: Files, rows: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """One row an image, its 1024 red, 1024 green, 1024 blue values -> (image, 32, 32, 3)."""
    rows = np.asarray(rows)
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
            f"{files.source}: {name} is no CIFAR batch ({type(error).__name__}: {error}). "
            "Delete it and fetch it again"
        ) from error
    if not isinstance(content, dict) or not set(keys) <= set(content):
        found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise DataError(f"{files.source}: {name} holds {found}; expected {', '.join(keys)}")
    return content


# The function that numpy names in every pickled array, by the public road to it.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,  # how Python 3 writes bytes for Python 2
}


class _ArraysOnly(pickle.Unpickler):
    """Builds dicts, lists, numbers, strings and arrays; anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, not only for arrays")
        return _ALLOWED[module, name]
