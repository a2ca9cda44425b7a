"""Writes the images shipped with the package: the first 200 test images per class of CIFAR-10.

    python tools/make_bundled_images.py [--source FOLDER]

FOLDER holds CIFAR-10, as downloaded by `rtta data get cifar10`. The images are written as one
lossless sheet of tiles, with labels and class names as JSON; data/cifar.py reads this layout.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

from realistic_tta.data.bundled_images import FOLDER, first_of_each_class
from realistic_tta.data.cifar import load_cifar

PER_CLASS, COLUMNS = 200, 50


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the images shipped with the package.")
    parser.add_argument("--source", type=Path, help="CIFAR-10; by default the folder of rtta data")
    test = load_cifar("cifar10", "test", parser.parse_args().source)

    chosen = first_of_each_class(test.labels, PER_CLASS)
    tiles = test.take(chosen)  # (image, 32, 32, 3)
    count, side = len(tiles), tiles.shape[1]
    grid = tiles.reshape(count // COLUMNS, COLUMNS, side, side, 3).transpose(0, 2, 1, 3, 4)
    sheet = grid.reshape(count // COLUMNS * side, COLUMNS * side, 3)

    FOLDER.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.ascontiguousarray(sheet)).save(
        FOLDER / "test_0.webp", lossless=True, quality=100, method=6
    )
    (FOLDER / "test_labels.json").write_text(json.dumps(test.labels[chosen].tolist()))
    (FOLDER / "classes.json").write_text(json.dumps(test.classes))
    size = (FOLDER / "test_0.webp").stat().st_size
    print(f"{FOLDER}: {count} images, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
