"""The type that every loader returns: images, labels and class names."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError
from realistic_tta.storage import atomic_write


class LabeledImages(Protocol):
    """Images with labels. The images may be read from disk on demand."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels, (image,)."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names by label."""

    def __len__(self) -> int: ...

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the images at these indices: (image, height, width, 3)."""

    def digest(self) -> str:
        """Return a checksum of images and labels that does not depend on their location."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images as one array, in memory or memory-mapped.

    Attributes:
        images: (image, height, width, 3) uint8.
        labels: (image,) int64.
        classes: class names by label.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the images at these indices: (image, height, width, 3)."""
        return np.asarray(self.images[indices])

    def digest(self) -> str:
        """Return the SHA-256 of all pixels and labels."""
        found = hashlib.sha256(np.ascontiguousarray(self.images).data)
        found.update(np.ascontiguousarray(self.labels).data)
        return found.hexdigest()


def check_images(
    where: str, images: NDArray[np.uint8], labels: NDArray[np.int64], classes: tuple[str, ...]
) -> Images:
    """Return the checked images; errors begin with `where`."""
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        raise DataError(
            f"{where}: images are {images.shape} {images.dtype}; "
            "expected (image, height, width, 3) uint8"
        )
    if len(images) != len(labels):
        raise DataError(
            f"{where}: {len(images)} images but {len(labels)} labels; expected equal numbers"
        )
    check_labels(where, labels, len(classes))
    return Images(images, labels, classes)


def check_labels(where: str, labels: NDArray[np.int64], classes: int) -> None:
    """Raise DataError unless every label is from 0 to classes - 1."""
    if len(labels) == 0:
        raise DataError(f"{where}: no labels; expected at least one")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise DataError(f"{where}: labels from {low} to {high}; expected 0 to {classes - 1}")


def write_array(path: Path, array: NDArray[np.generic]) -> None:
    """Write an array as .npy, atomically."""
    content = io.BytesIO()
    np.save(content, array)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content.getbuffer())
