"""The data sets that a benchmark runs on: where each lies, and which network goes with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from realistic_tta.benchmark.scenarios import SETTINGS, StreamPlan
from realistic_tta.benchmark.stream import Stream
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.cifar_c import open_cifar_c
from realistic_tta.data.generate import Progress, clean_file, generate
from realistic_tta.data.imagenet_c import open_imagenet_c
from realistic_tta.data.images import LabelledImages
from realistic_tta.data.registry import (
    CIFAR10_CLASSES,
    CIFAR100_CLASSES,
    CORRUPTIONS,
    data_folder,
)
from realistic_tta.errors import DataError, SettingError, unknown

IMAGENET_LIST = "images.txt"  # beside ImageNet-C: the images to use, one wnid/name.JPEG a line


class CorruptedSet(Protocol):
    """A data set that gives its images by corruption and severity."""

    def part(self, corruption: str, severity: int) -> LabelledImages:
        """The images of one corruption at one severity."""


@dataclass(frozen=True)
class BenchmarkData:
    """embedded: the package's own network for it. source_batch_size: of its networks' training.

    published: the name under which `rtta data get` fetches it; None if it comes with the package.
    """

    embedded: str | None
    source_batch_size: int
    published: str | None


DATA: dict[str, BenchmarkData] = {
    "cifar10-c": BenchmarkData("cifar10", 128, "cifar10-c"),
    "cifar100-c": BenchmarkData("cifar100", 128, "cifar100-c"),
    "imagenet-c": BenchmarkData(None, 256, "imagenet-c"),
    "cifar10-c-sample": BenchmarkData("cifar10", 128, None),
}
IN_PACKAGE = {"cifar10-c": "cifar10-c-sample"}  # what there is where the published set is not


def find_data(name: str) -> BenchmarkData:
    """The entry of that name; an unknown one is answered with the nearest."""
    if name not in DATA:
        raise SettingError(unknown("data set", name, DATA))
    return DATA[name]


def on_disk(name: str) -> bool:
    """Whether the published set is where data sets are kept."""
    published = find_data(name).published
    if published is None:
        return False
    there = (data_folder() / published).glob("*")
    return any(path.suffix != ".partial" for path in there)  # a download that was begun is none


def available(name: str) -> str:
    """The set itself if it is on disk, else the package's own in its place, else an error."""
    entry = find_data(name)
    if entry.published is None or on_disk(name):
        return name
    if name in IN_PACKAGE:
        return IN_PACKAGE[name]
    raise DataError(
        f"{name} is not in {data_folder()}; fetch it with `rtta data get {entry.published}`"
    )


def prepare(
    name: str,
    plan: StreamPlan,
    folder: Path,
    workers: int,
    report: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Writes the corrupted images that come from the package, once, for all workers to map."""
    place = generated(name, plan, folder)
    there = all((place / f"{corruption}.npy").exists() for corruption in CORRUPTIONS)
    there = there and not clean_file(place).exists()  # a kill may have come before the last step
    if there or find_data(name).published is not None:
        return
    sample, severities = load_sample(), severities_of(plan.setting)
    if plan.images is not None and plan.images > len(sample):
        raise SettingError(f"images is {plan.images}; expected at most {len(sample)}, the sample's")
    images, labels = sample.images[: plan.images], sample.labels[: plan.images]
    generate(images, labels, place, severities=severities, workers=workers, report=report)


def generated(name: str, plan: StreamPlan, folder: Path) -> Path:
    """Where the corrupted images are written: of all, or of the first so many, in a folder apart.

    The last few images get other random draws when others follow them (generate.py works in
    pieces), so that a smaller set is not just the beginning of a larger one.

    >>> generated("cifar10-c-sample", StreamPlan(), Path("out")).as_posix()
    'out/data/cifar10-c-sample-5'
    >>> generated("cifar10-c-sample", StreamPlan(images=256), Path("out")).as_posix()
    'out/data/cifar10-c-sample-5-first-256'
    """
    severities = "".join(map(str, severities_of(plan.setting)))
    first = "" if plan.images is None else f"-first-{plan.images}"
    return folder / "data" / f"{name}-{severities}{first}"


def open_published(name: str, folder: Path) -> CorruptedSet:
    """A set fetched into the folder, memory-mapped; every file is checked, none is read."""
    source = folder / str(find_data(name).published)
    if name == "imagenet-c":
        listed = source / IMAGENET_LIST
        return open_imagenet_c(source, listed=listed if listed.exists() else None)
    return open_cifar_c(source, CIFAR100_CLASSES if name == "cifar100-c" else CIFAR10_CLASSES)


def severities_of(setting: str) -> tuple[int, ...]:
    """Which severities a setting shows.

    >>> severities_of("continual"), severities_of("gradual")
    ((5,), (1, 2, 3, 4, 5))
    """
    return tuple(sorted({part.severity for part in SETTINGS[setting].parts(CORRUPTIONS)}))


def open_stream(name: str, plan: StreamPlan, folder: Path) -> Stream:
    """The images of a data set in the order of the plan."""
    parts = SETTINGS[plan.setting].parts(CORRUPTIONS)
    if find_data(name).published is None:
        found: CorruptedSet = open_cifar_c(generated(name, plan, folder), CIFAR10_CLASSES)
    else:
        found = open_published(name, data_folder())
    by_part = {part: found.part(*part) for part in set(parts)}
    return Stream(plan, parts, [by_part[part] for part in parts])
