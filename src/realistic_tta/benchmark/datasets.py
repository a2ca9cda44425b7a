"""The datasets of the benchmark: where each is stored, and which model belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.data.cifar_c import open_cifar_c
from realistic_tta.data.generate import Progress, generate, input_file
from realistic_tta.data.imagenet_c import open_imagenet_c
from realistic_tta.data.images import LabeledImages
from realistic_tta.data.registry import CIFAR10_CLASSES, CIFAR100_CLASSES, data_folder
from realistic_tta.errors import DataError, OptionError, unknown

from .scenarios import StreamPlan
from .stream import Stream

IMAGENET_LIST = "images.txt"  # optional list of ImageNet-C images, one wnid/name.JPEG per line


class CorruptedSet(Protocol):
    """A dataset indexed by corruption and severity."""

    def part(self, corruption: str, severity: int) -> LabeledImages:
        """The images of one corruption at one severity."""


@dataclass(frozen=True)
class BenchmarkDataset:
    """embedded: the package's own model. source_batch_size: batch size its models trained with.

    published: the name for `rtta data get`; None if the dataset comes with the package.
    """

    embedded: str | None
    source_batch_size: int
    published: str | None


DATASETS: dict[str, BenchmarkDataset] = {
    "cifar10-c": BenchmarkDataset("cifar10", 128, "cifar10-c"),
    "cifar100-c": BenchmarkDataset("cifar100", 128, "cifar100-c"),
    "imagenet-c": BenchmarkDataset(None, 256, "imagenet-c"),
    "cifar10-c-sample": BenchmarkDataset("cifar10", 128, None),
}
IN_PACKAGE = {"cifar10-c": "cifar10-c-sample"}  # substitutes for datasets that are not on disk


def find_dataset(name: str) -> BenchmarkDataset:
    """The entry of that name."""
    if name not in DATASETS:
        raise OptionError(unknown("dataset", name, DATASETS))
    return DATASETS[name]


def on_disk(name: str) -> bool:
    """Whether the published dataset is in the data folder."""
    published = find_dataset(name).published
    if published is None:
        return False
    files = (data_folder() / published).glob("*")
    return any(path.suffix != ".partial" for path in files)


def available(name: str) -> str:
    """The dataset itself if it is on disk, else its substitute from the package."""
    entry = find_dataset(name)
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
    """Corrupts the package's images and writes them, once for all workers."""
    place = generated(name, plan, folder)
    names = corruptions_of(plan)
    complete = all((place / f"{name}.npy").exists() for name in names)
    complete = complete and not input_file(place).exists()  # left if the last step was interrupted
    if complete or find_dataset(name).published is not None:
        return
    sample = load_bundled_images()
    if plan.images is not None and plan.images > len(sample):
        raise OptionError(f"images is {plan.images}; expected at most {len(sample)}")
    images, labels = sample.images[: plan.images], sample.labels[: plan.images]
    severities = severities_of(plan)
    generate(
        images, labels, place, names=names, severities=severities, workers=workers, report=report
    )


def generated(name: str, plan: StreamPlan, folder: Path) -> Path:
    """The folder of the generated images; a subset has its own, as its random draws differ.

    >>> generated("cifar10-c-sample", StreamPlan(images=256), Path("out")).as_posix()
    'out/data/cifar10-c-sample-5-first-256'
    """
    severities = "".join(map(str, severities_of(plan)))
    first = "" if plan.images is None else f"-first-{plan.images}"
    return folder / "data" / f"{name}-{severities}{first}"


def open_published(name: str, folder: Path, corruptions: Sequence[str]) -> CorruptedSet:
    """Opens a downloaded dataset; files are checked, and memory-mapped where possible."""
    source = folder / str(find_dataset(name).published)
    if name == "imagenet-c":
        listed = source / IMAGENET_LIST
        listed_or_all = listed if listed.exists() else None
        return open_imagenet_c(source, listed=listed_or_all, corruptions=corruptions)
    classes = CIFAR100_CLASSES if name == "cifar100-c" else CIFAR10_CLASSES
    return open_cifar_c(source, classes, corruptions=corruptions)


def severities_of(plan: StreamPlan) -> tuple[int, ...]:
    """The severities that a stream contains.

    >>> severities_of(StreamPlan(severity=3)), severities_of(StreamPlan("gradual"))
    ((3,), (1, 2, 3, 4, 5))
    """
    return tuple(sorted({part.severity for part in plan.parts}))


def corruptions_of(plan: StreamPlan) -> tuple[str, ...]:
    """The corruptions that a stream contains, in its order.

    >>> corruptions_of(StreamPlan("clean"))
    ('clean',)
    """
    return tuple(dict.fromkeys(part.corruption for part in plan.parts))


def open_stream(name: str, plan: StreamPlan, folder: Path) -> Stream:
    """The images of a dataset in the order of the plan."""
    parts, corruptions = plan.parts, corruptions_of(plan)
    if find_dataset(name).published is None:
        place = generated(name, plan, folder)
        found: CorruptedSet = open_cifar_c(place, CIFAR10_CLASSES, corruptions=corruptions)
    else:
        found = open_published(name, data_folder(), corruptions)
    by_part = {part: found.part(*part) for part in set(parts)}
    return Stream(plan, parts, [by_part[part] for part in parts])
