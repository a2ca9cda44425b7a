"""Writes the package's sample of CIFAR-10: the first 200 test images of every class, file order.

    python tools/make_sample.py [--source FOLDER]

FOLDER holds CIFAR-10, as `rtta data get cifar10` leaves it. The sample is a lossless sheet of tiles
with labels and class names beside, the layout that datasets/cifar_sheets.py reads.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

from realistic_tta.data.bundled_images import SAMPLE, first_of_each_class
from realistic_tta.data.cifar import load_cifar

EACH, COLUMNS = 200, 50


def main() -> None:
    parser = argparse.ArgumentParser(description="The sample that the package carries.")
    parser.add_argument("--source", type=Path, help="CIFAR-10; by default where rtta data puts it")
    test = load_cifar("cifar10", "test", parser.parse_args().source)

    chosen = first_of_each_class(test.labels, EACH)
    tiles = test.take(chosen)  # (image, 32, 32, 3)
    count, side = len(tiles), tiles.shape[1]
    grid = tiles.reshape(count // COLUMNS, COLUMNS, side, side, 3).transpose(0, 2, 1, 3, 4)
    sheet = grid.reshape(count // COLUMNS * side, COLUMNS * side, 3)

    SAMPLE.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.ascontiguousarray(sheet)).save(
        SAMPLE / "test_0.webp", lossless=True, quality=100, method=6
    )
    (SAMPLE / "test_labels.json").write_text(json.dumps(test.labels[chosen].tolist()))
    (SAMPLE / "classes.json").write_text(json.dumps(test.classes))
    size = (SAMPLE / "test_0.webp").stat().st_size
    print(f"{SAMPLE}: {count} images, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
