"""Opens clean ImageNet images in a folder, cropped as for ImageNet-C: resize to 256, center 224.

Two layouts are supported: one folder per class (wnid/name.JPEG, the usual layout of the validation
set), or files named by their label (0000.jpg to 0999.jpg). Images are decoded on demand.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from realistic_tta.errors import DataError

from .decode import decode_rgb

SIDE, RESIZED_SIDE = 224, 256
MAX_ASPECT_RATIO = 20
SUFFIXES = {".jpeg", ".jpg", ".png"}


@dataclass(frozen=True, eq=False)
class Photographs:
    """Photographs on disk with labels; `take` reads them."""

    files: tuple[Path, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the photographs at these indices: (image, 224, 224, 3)."""
        return np.stack([read_photograph(self.files[index]) for index in indices])


def open_imagenet(folder: Path) -> Photographs:
    """Open the photographs of a folder, sorted by class and name.

    The label is the rank of the class folder, or the number in the file name.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected ImageNet photographs in it")
    classes = sorted(child.name for child in folder.iterdir() if child.is_dir())
    if classes:
        files = [
            (file, label)
            for label, name in enumerate(classes)
            for file in _images_in(folder / name)
        ]
    else:
        files = [(file, _label(file)) for file in _images_in(folder)]
        classes = [f"{label:04d}" for label in range(1000)]
    if not files:
        raise DataError(
            f"{folder}: no photograph found; expected a folder per class (wnid/name.JPEG), "
            "or files named by their label (0000.jpg)"
        )
    labels = np.array([label for _, label in files], dtype=np.int64)
    return Photographs(tuple(file for file, _ in files), labels, tuple(classes))


def read_photograph(file: Path) -> NDArray[np.uint8]:
    """Return the photograph as RGB, (224, 224, 3). One of that size is not resized."""
    photograph = decode_rgb(file, str(file))
    shorter, longer = sorted(photograph.size)
    if longer > MAX_ASPECT_RATIO * shorter:  # resized, it would fill the memory
        raise DataError(
            f"{file}: {longer} x {shorter} pixels; expected at most {MAX_ASPECT_RATIO} to 1"
        )
    if photograph.size != (SIDE, SIDE):
        photograph = _center_crop(photograph)
    return np.asarray(photograph)


def _center_crop(photograph: Image.Image) -> Image.Image:
    width, height = photograph.size
    scale = RESIZED_SIDE / min(width, height)
    size = (round(width * scale), round(height * scale))
    resized = photograph.resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - SIDE) // 2, (size[1] - SIDE) // 2
    return resized.crop((left, top, left + SIDE, top + SIDE))


def _images_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)


def _label(file: Path) -> int:
    if not file.stem.isdecimal() or int(file.stem) > 999:
        raise DataError(
            f"{file}: the name is not a label; expected 0000 to 0999, or a folder per class"
        )
    return int(file.stem)
