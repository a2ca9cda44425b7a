"""The images shipped with the package: 2,000 of CIFAR-10's test set, 200 per class, lossless.

They are the first 200 images of every class in the order of the test set, so classes are mixed as
they are there. tools/make_bundled_images.py writes them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .archives import list_files
from .cifar import read_tile_sheets
from .images import Images, check_images

FOLDER = Path(__file__).parents[1] / "assets" / "cifar10"


def load_bundled_images() -> Images:
    """Return the 2,000 bundled test images of CIFAR-10.

    >>> len(load_bundled_images())
    2000
    """
    found = read_tile_sheets(list_files(FOLDER), "test")
    return check_images(str(FOLDER), found.images, found.labels, found.classes)


def first_of_each_class(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the indices of the first `count` images of every class, in ascending order.

    >>> first_of_each_class(np.array([1, 1, 0, 1, 0, 0]), 2).tolist()
    [0, 1, 2, 4]
    """
    indices = [np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]
    return np.sort(np.concatenate(indices))
