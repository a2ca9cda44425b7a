"""What every loader returns: images, labels, class names; and how arrays are put on disk."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError


class LabelledImages(Protocol):
    """Images that may still lie on disk, with their labels."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """(image,)."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names by label."""

    def __len__(self) -> int: ...

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The images of these numbers, in this order: (image, height, width, 3)."""

    def digest(self) -> str:
        """Checksum of images and labels, wherever they lie."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images as one array, in memory or memory-mapped.

    images: (image, height, width, 3) uint8
    labels: (image,) int64
    classes: names by label
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The images of these numbers, in this order: (image, height, width, 3)."""
        return np.asarray(self.images[indices])

    def digest(self) -> str:
        """SHA-256 of every pixel and label."""
        found = hashlib.sha256(np.ascontiguousarray(self.images).data)
        found.update(np.ascontiguousarray(self.labels).data)
        return found.hexdigest()


def check_images(
    where: str, images: NDArray[np.uint8], labels: NDArray[np.int64], classes: tuple[str, ...]
) -> Images:
    """The three together, or an error that names `where` they come from."""
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        raise DataError(
            f"{where}: images are {images.shape} {images.dtype}; "
            "expected (image, height, width, 3) uint8"
        )
    if len(images) != len(labels):
        raise DataError(
            f"{where}: {len(images)} images but {len(labels)} labels; "
            "expected as many of one as of the other"
        )
    check_labels(where, labels, len(classes))
    return Images(images, labels, classes)


def check_labels(where: str, labels: NDArray[np.int64], classes: int) -> None:
    """Raises unless every label is a class: 0 to classes - 1."""
    if len(labels) == 0:
        raise DataError(f"{where}: no labels; expected at least one")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise DataError(f"{where}: labels from {low} to {high}; expected 0 to {classes - 1}")


def write_array(path: Path, array: NDArray[np.generic]) -> None:
    """Saves as .npy; `path` either holds the whole array or does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, array)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
