"""What to run for a table of the paper: on which network and images, or what is missing for it.

comparison.py sets the errors beside the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from realistic_tta.benchmark.scenarios import SETTINGS
from realistic_tta.data.cifar_c import ABOUT
from realistic_tta.data.registry import data_folder, dataset
from realistic_tta.errors import DataError, SettingError, unknown
from realistic_tta.methods.catalogue import METHODS
from realistic_tta.models.registry import find as find_network
from realistic_tta.models.registry import networks_folder
from realistic_tta.models.registry import on_disk as network_on_disk

from .data import IN_PACKAGE, find_data, on_disk
from .experiment import EMBEDDED, Experiment
from .paper_tables import NETWORKS, Block, PaperTable, Row

QUICK_IMAGES = 200  # of a corruption, all its severities together


@dataclass(frozen=True)
class Subject:
    """What stands for a block of the paper. data: the block's own set, or the package's."""

    block: Block
    network: str
    data: str

    def differences(self) -> list[str]:
        """Why its numbers cannot be compared with the paper's; empty if they can."""
        found = []
        if self.network != NETWORKS[self.block.data]:
            found.append(f"network {self.network} instead of {NETWORKS[self.block.data]}")
        if self.data != self.block.data:
            found.append(f"the package's 2,000 photographs instead of {self.block.data}")
        elif (data_folder() / self.data / ABOUT).exists():
            found.append(f"a {self.data} that was made here, not the published one")
        return found


def find_subjects(
    table: PaperTable, network: str | None = None, data: Sequence[str] | None = None
) -> tuple[list[Subject], list[str]]:
    """One for each block that can be run, and a sentence for each that is left out.

    network: None for the paper's own, "embedded" for the package's, or a name. data: only the
    blocks of these sets. Raises if anything is missing that no other choice was made for.
    """
    blocks = choose_blocks(table, data)
    if network == EMBEDDED:
        return _embedded_subjects(table, blocks)
    subjects, left_out = [], []
    for block, there in blocks:
        chosen = network or NETWORKS[block.data]
        if find_network(chosen).data == block.data.removesuffix("-c"):
            subjects.append(Subject(block, chosen, there))
        else:
            left_out.append(f"{block.title}: {chosen} tells apart other classes")
    _check_any(table, subjects, left_out)
    _check_on_disk(table, subjects)
    return subjects, left_out


def choose_blocks(table: PaperTable, data: Sequence[str] | None) -> list[tuple[Block, str]]:
    """The blocks of these data sets, each with the set to run it on."""
    if data is None:
        return [(block, block.data) for block in table.blocks]
    known = [name for b in table.blocks for name in (b.data, IN_PACKAGE.get(b.data)) if name]
    for name in data:
        find_data(name)
        if name not in known:
            raise SettingError(
                f"{table.name} has no {name}; expected one of: {', '.join(dict.fromkeys(known))}"
            )
    return [
        (block, name)
        for block in table.blocks
        for name in data
        if name in (block.data, IN_PACKAGE.get(block.data))
    ]


def _embedded_subjects(
    table: PaperTable, blocks: Sequence[tuple[Block, str]]
) -> tuple[list[Subject], list[str]]:
    """On the published set if it is on disk, else on the package's images, else not at all."""
    subjects, left_out = [], []
    for block, named in blocks:
        network = find_data(named).embedded
        there = named if on_disk(named) or not find_data(named).published else IN_PACKAGE.get(named)
        if network is None:
            left_out.append(f"{block.title}: no network for it comes with the package")
        elif there is None:
            clean, place = named.removesuffix("-c"), data_folder() / named
            left_out.append(
                f"{block.title}: {named} is not on disk and its images do not come with the "
                f"package; `rtta data get {named}` fetches it, or `rtta corrupt {clean} --out "
                f"{place}` makes one"
            )
        else:
            subjects.append(Subject(block, network, there))
    _check_any(table, subjects, left_out)
    return subjects, left_out


def _check_any(table: PaperTable, subjects: list[Subject], left_out: list[str]) -> None:
    if not subjects:
        raise DataError(f"nothing of {table.name} can be run.\n  " + "\n  ".join(left_out))


def _check_on_disk(table: PaperTable, subjects: Sequence[Subject]) -> None:
    """Says all that is missing at once, where it is published and how to get it."""
    missing = dict.fromkeys(line for subject in subjects for line in _missing(subject))
    if not missing:
        return
    complete = dict.fromkeys(each.data for each in subjects if not _missing(each))
    lines = [f"{table.name} was not run. Not on disk:", *(f"  {line}" for line in missing)]
    if complete:
        lines.append(f"`--data {','.join(complete)}` runs what is complete.")
    lines.append(
        f"`rtta reproduce {table.name} --network embedded` runs on the network and images of the "
        "package instead; such numbers are not comparable with the paper's."
    )
    raise DataError("\n".join(lines))


def _missing(subject: Subject) -> list[str]:
    lines, source = [], find_network(subject.network)
    if network_on_disk(subject.network) is None:
        place = networks_folder() / (source.file or f"{subject.network}.safetensors")
        lines.append(
            f"network {subject.network}. Published: {source.published}. Expected as {place}; "
            "`rtta networks` says what is found"
        )
    if find_data(subject.data).published and not on_disk(subject.data):
        archives = dataset(subject.data).archives
        lines.append(
            f"data set {subject.data}. Published: {', '.join(each.url for each in archives)}. "
            f"`rtta data get {subject.data}` fetches it ({dataset(subject.data).size / 1e9:.1f} GB)"
        )
    return lines


def choose_rows(table: PaperTable, methods: Sequence[str] | None) -> list[Row]:
    """The rows of these methods, in the paper's order."""
    for name in methods or ():
        if name not in table.methods:
            raise SettingError(unknown(f"method in {table.name}", name, table.methods))
    return [row for row in table.rows if methods is None or row.method in methods]


def quick_sizes(block: Block) -> list[int]:
    """The block's largest batch size, 16 and 1.

    >>> quick_sizes(Block("ImageNet-C", "imagenet-c", "continual", (64, 16, 4, 2, 1)))
    [64, 16, 1]
    """
    return [block.batch_sizes[0], 16, 1]


def quick_images(setting: str) -> int:
    """Images of each part, so that a corruption has about QUICK_IMAGES.

    >>> quick_images("continual"), quick_images("gradual")
    (200, 22)
    """
    return QUICK_IMAGES // len(SETTINGS[setting].parts(["fog"]))


def experiments_of(
    subject: Subject,
    methods: Sequence[str],
    sizes: Sequence[int],
    seeds: Sequence[int],
    images: int | None,
) -> dict[tuple[str, int], list[Experiment]]:
    """By method and batch size, one a seed."""
    return {
        (method, size): [
            Experiment(
                subject.network,
                subject.data,
                subject.block.setting,
                method,
                size,
                published_settings(method, subject.block.data),
                seed,
                images,
            )
            for seed in seeds
        ]
        for method in methods
        for size in sizes
    }


def published_settings(method: str, data: str) -> dict[str, str]:
    """The preset of the data set, unless it is the default: then records of `rtta bench` serve.

    >>> published_settings("eta", "cifar100-c"), published_settings("eta", "cifar10-c")
    ({'preset': 'cifar100_c'}, {})
    """
    name = data.replace("-", "_")
    presets = getattr(METHODS[method].settings_type, "presets", {})
    return {"preset": name} if presets.get(name) else {}
