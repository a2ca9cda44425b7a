"""The experiments for a table of the paper, and the models and datasets they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from realistic_tta.data.cifar_c import DESCRIPTION_FILE
from realistic_tta.data.registry import data_folder, dataset
from realistic_tta.errors import DataError, OptionError, unknown
from realistic_tta.methods.registry import METHODS
from realistic_tta.models import registry

from .datasets import IN_PACKAGE, find_dataset, on_disk
from .experiment import EMBEDDED, Experiment
from .paper_tables import PAPER_MODELS, Block, PaperTable, Row
from .scenarios import SCENARIOS

QUICK_IMAGES = 200  # per corruption, over all its severities


@dataclass(frozen=True)
class Subject:
    """The model and dataset on which a block of the paper is run."""

    block: Block
    model: str
    dataset: str

    def differences(self) -> list[str]:
        """Why the results cannot be compared with the paper's; empty if they can."""
        found, paper = [], PAPER_MODELS[self.block.dataset]
        if self.model != paper:
            found.append(f"model {self.model} instead of {paper}")
        if self.dataset != self.block.dataset:
            found.append(f"the package's 2,000 images instead of {self.block.dataset}")
        elif (data_folder() / self.dataset / DESCRIPTION_FILE).exists():
            found.append(f"a generated {self.dataset} instead of the published one")
        return found


def find_subjects(
    table: PaperTable, model: str | None = None, datasets: Sequence[str] | None = None
) -> tuple[list[Subject], list[str]]:
    """A subject for each block that can be run, and the reason for each that is skipped.

    model: None for the paper's, "embedded" for the package's, or a name. datasets: only the blocks
    of these. Raises DataError if a model or dataset is missing.
    """
    subjects, skipped = [], []
    for block, name in choose_blocks(table, datasets):
        found = _embedded(block, name) if model == EMBEDDED else _chosen(block, name, model)
        if isinstance(found, Subject):
            subjects.append(found)
        else:
            skipped.append(f"{block.title}: {found}")
    if not subjects:
        raise DataError(f"nothing of {table.name} can be run.\n  " + "\n  ".join(skipped))
    if model != EMBEDDED:
        _check_on_disk(table, subjects)
    return subjects, skipped


def choose_blocks(table: PaperTable, datasets: Sequence[str] | None) -> list[tuple[Block, str]]:
    """The blocks of these datasets, each with the dataset to run it on."""
    if datasets is None:
        return [(block, block.dataset) for block in table.blocks]
    found = [
        (block, name)
        for block in table.blocks
        for name in datasets
        if name in (block.dataset, IN_PACKAGE.get(block.dataset))
    ]
    for name in datasets:
        find_dataset(name)
        if name not in {used for _, used in found}:
            known = dict.fromkeys(block.dataset for block in table.blocks)
            raise OptionError(f"{table.name} has no {name}; expected one of: {', '.join(known)}")
    return found


def _chosen(block: Block, name: str, model: str | None) -> Subject | str:
    chosen = model or PAPER_MODELS[block.dataset]
    if registry.find(chosen).dataset == block.dataset.removesuffix("-c"):
        return Subject(block, chosen, name)
    return f"{chosen} has other classes"


def _embedded(block: Block, name: str) -> Subject | str:
    """On the published dataset if it is on disk, else on the package's images."""
    model = find_dataset(name).embedded
    available = on_disk(name) or not find_dataset(name).published
    used = name if available else IN_PACKAGE.get(name)
    if model is None:
        return "the package has no model for it"
    if used is None:
        clean, place = name.removesuffix("-c"), data_folder() / name
        return (
            f"{name} is not on disk; `rtta data get {name}` fetches it, "
            f"`rtta corrupt {clean} --out {place}` generates it"
        )
    return Subject(block, model, used)


def _check_on_disk(table: PaperTable, subjects: Sequence[Subject]) -> None:
    """Names everything that is missing at once, with its source."""
    missing = dict.fromkeys(line for subject in subjects for line in _missing(subject))
    if not missing:
        return
    complete = dict.fromkeys(each.dataset for each in subjects if not _missing(each))
    lines = [f"{table.name} was not run. Not on disk:", *(f"  {line}" for line in missing)]
    if complete:
        lines.append(f"`--datasets {','.join(complete)}` runs what is complete.")
    lines.append(
        f"`rtta reproduce {table.name} --models embedded` runs on the package's own model and "
        "images instead; those results are not comparable with the paper's."
    )
    raise DataError("\n".join(lines))


def _missing(subject: Subject) -> list[str]:
    lines, source = [], registry.find(subject.model)
    if registry.on_disk(subject.model) is None:
        place = registry.models_folder() / (source.file or f"{subject.model}.safetensors")
        lines.append(
            f"model {subject.model}. Published: {source.published}. Expected at {place}; "
            "see `rtta models`"
        )
    if find_dataset(subject.dataset).published and not on_disk(subject.dataset):
        found = dataset(subject.dataset)
        lines.append(
            f"dataset {subject.dataset}. Published: {', '.join(a.url for a in found.archives)}. "
            f"`rtta data get {subject.dataset}` fetches it ({found.size / 1e9:.1f} GB)"
        )
    return lines


def choose_rows(table: PaperTable, methods: Sequence[str] | None) -> list[Row]:
    """The rows of these methods, in the paper's order."""
    for name in methods or ():
        if name not in table.methods:
            raise OptionError(unknown(f"method in {table.name}", name, table.methods))
    return [row for row in table.rows if methods is None or row.method in methods]


def quick_images(scenario: str) -> int:
    """Images per part, so that a corruption has about QUICK_IMAGES.

    >>> quick_images("continual"), quick_images("gradual")
    (200, 22)
    """
    return QUICK_IMAGES // len(SCENARIOS[scenario].parts(["fog"]))


def experiments_of(
    subject: Subject,
    methods: Sequence[str],
    sizes: Sequence[int],
    seeds: Sequence[int],
    images: int | None,
) -> dict[tuple[str, int], list[Experiment]]:
    """By method and batch size, one experiment per seed."""
    return {
        (method, size): [
            Experiment(
                subject.model,
                subject.dataset,
                subject.block.scenario,
                method,
                size,
                published_preset(method, subject.block.dataset),
                seed,
                images,
            )
            for seed in seeds
        ]
        for method in methods
        for size in sizes
    }


def published_preset(method: str, dataset: str) -> dict[str, str]:
    """The preset of the dataset; empty where it equals the defaults.

    >>> published_preset("eta", "cifar100-c"), published_preset("eta", "cifar10-c")
    ({'preset': 'cifar100_c'}, {})
    """
    name = dataset.replace("-", "_")
    presets = getattr(METHODS[method].settings_type, "presets", {})
    return {"preset": name} if presets.get(name) else {}
