"""The images that come with the package: 2,000 of CIFAR-10's test set, 200 a class, lossless.

The first 200 of every class, in the order of the test set, so that they come as mixed as there.
tools/make_sample.py wrote them; networks/embedded.py has the networks that go with them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .archives import list_files
from .cifar_sheets import read_tile_sheets
from .images import Images, check_images

SAMPLE = Path(__file__).parents[1] / "assets" / "cifar10"


def load_sample() -> Images:
    """The sample, decoded.

    >>> len(load_sample())
    2000
    """
    found = read_tile_sheets(list_files(SAMPLE), "test")
    return check_images(str(SAMPLE), found.images, found.labels, found.classes)


def first_of_each_class(labels: NDArray[np.int64], each: int) -> NDArray[np.int64]:
    """Where the first `each` images of every class stand, in order.

    >>> first_of_each_class(np.array([1, 1, 0, 1, 0, 0]), 2).tolist()
    [0, 1, 2, 4]
    """
    places = [np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]
    return np.sort(np.concatenate(places))
