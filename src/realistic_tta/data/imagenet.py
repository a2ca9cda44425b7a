"""Clean ImageNet photographs from a folder, cut as ImageNet-C was: shorter side 256, middle 224.

Two layouts: a folder a class (wnid/name.JPEG, as the validation set is usually kept), or files
whose name is their label (0000.jpg to 0999.jpg). Decoded when asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from realistic_tta.errors import DataError

from .decode import decode_rgb

SIDE, SHORTER = 224, 256
LONGEST = 20  # times the shorter side
ENDINGS = {".jpeg", ".jpg", ".png"}


@dataclass(frozen=True, eq=False)
class Photographs:
    """Photographs on disk, with their labels; `take` reads them."""

    files: tuple[Path, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The photographs of these numbers, in this order: (image, 224, 224, 3)."""
        return np.stack([read_photograph(self.files[index]) for index in indices])


def open_imagenet(folder: Path) -> Photographs:
    """The photographs below a folder, sorted by class and name; the class is the sorted place."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected ImageNet photographs in it")
    classes = sorted(child.name for child in folder.iterdir() if child.is_dir())
    if classes:
        files = [(file, label) for label, name in enumerate(classes) for file in _in(folder / name)]
    else:
        files = [(file, _label(file)) for file in _in(folder)]
        classes = [f"{label:04d}" for label in range(1000)]
    if not files:
        raise DataError(
            f"{folder}: no photograph found; expected a folder a class (wnid/name.JPEG), "
            "or files named by their label (0000.jpg)"
        )
    labels = np.array([label for _, label in files], dtype=np.int64)
    return Photographs(tuple(file for file, _ in files), labels, tuple(classes))


def read_photograph(file: Path) -> NDArray[np.uint8]:
    """RGB, (224, 224, 3). A photograph of that size already is taken as it is."""
    photograph = decode_rgb(file, str(file))
    shorter, longer = sorted(photograph.size)
    if longer > LONGEST * shorter:  # enlarged to the shorter side, it would fill the memory
        raise DataError(f"{file}: {longer} x {shorter} pixels; expected at most {LONGEST} to 1")
    if photograph.size != (SIDE, SIDE):
        photograph = _middle(photograph)
    return np.asarray(photograph)


def _middle(photograph: Image.Image) -> Image.Image:
    width, height = photograph.size
    scale = SHORTER / min(width, height)
    size = (round(width * scale), round(height * scale))
    large = photograph.resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - SIDE) // 2, (size[1] - SIDE) // 2
    return large.crop((left, top, left + SIDE, top + SIDE))


def _in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in ENDINGS)


def _label(file: Path) -> int:
    if not file.stem.isdecimal() or int(file.stem) > 999:
        raise DataError(f"{file}: the name is no label; expected 0000 to 0999, or a folder a class")
    return int(file.stem)
