"""`rtta reproduce`: runs a table of the paper and prints it beside the paper's numbers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .bench_run import add_run_options, listed, run

if TYPE_CHECKING:
    from realistic_tta.benchmark.comparison import Comparison
    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.reproduction import Subject
    from realistic_tta.benchmark.results import Record

TABLES = ("continual_cifar", "continual_imagenet", "mixed_gradual", "ablation")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `reproduce`."""
    reproduce = commands.add_parser(
        "reproduce",
        help="run a table of the paper, and print it beside the paper's numbers",
        description="Runs on the paper's networks and data sets if they are on disk; else it says "
        "what is missing. Records are kept as `rtta bench` does: what is done is not run again.",
    )
    reproduce.add_argument("table", choices=TABLES)
    axes = reproduce.add_argument_group("what of it to run; by default all")
    axes.add_argument(
        "--network", metavar="NAME", help="embedded, or one of `rtta networks`; default: the paper"
    )
    axes.add_argument("--data", metavar="LIST", help="only the blocks of these data sets")
    axes.add_argument("--methods", metavar="LIST", dest="method", help="only these rows")
    axes.add_argument("--batch-sizes", metavar="LIST", dest="batch_size", help="only these columns")
    axes.add_argument("--images", metavar="N", help="of every corruption and severity")
    axes.add_argument("--seeds", metavar="LIST", dest="seed", help="averaged; default: 1")
    axes.add_argument(
        "--quick", action="store_true", help="200 images of a corruption, batch sizes 200, 16, 1"
    )
    reproduce.add_argument("--markdown", action="store_true", help="the table as Markdown")
    add_run_options(reproduce)
    reproduce.set_defaults(run=_reproduce)


def _reproduce(arguments: argparse.Namespace) -> None:
    reproduction = Reproduction(arguments)
    for line in reproduction.announcement():
        print(line)
    print(flush=True)
    run(reproduction.experiments(), arguments, reproduction.show)


class Reproduction:
    """One call: which blocks, rows and columns were asked for, and what to run for them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from realistic_tta.benchmark.paper_tables import TABLES
        from realistic_tta.benchmark.reproduction import choose_rows, find_subjects

        given = {name: _given(arguments, name) for name in ("data", "method", "batch_size", "seed")}
        self.table = TABLES[arguments.table]
        self.rows = choose_rows(self.table, given["method"])
        self.subjects, self.left_out = find_subjects(self.table, arguments.network, given["data"])
        self.given_sizes, self.seeds = given["batch_size"], given["seed"] or [1]
        self.images = _images(arguments)
        self.quick, self.markdown = arguments.quick, arguments.markdown
        self.planned = [self._plan(subject) for subject in self.subjects]

    def _plan(self, subject: Subject) -> dict[tuple[str, int], list[Experiment]]:
        from realistic_tta.benchmark.reproduction import experiments_of

        methods = [row.method for row in self.rows]
        sizes, images = self.sizes_of(subject), self.images_of(subject)
        return experiments_of(subject, methods, sizes, self.seeds, images)

    def sizes_of(self, subject: Subject) -> list[int]:
        """The columns of a block: what was asked for, else the paper's, or few of them."""
        from realistic_tta.benchmark.reproduction import quick_sizes

        if self.given_sizes:
            return sorted(set(self.given_sizes), reverse=True)
        return quick_sizes(subject.block) if self.quick else list(subject.block.batch_sizes)

    def images_of(self, subject: Subject) -> int | None:
        """How many of each part; None for all."""
        from realistic_tta.benchmark.reproduction import quick_images

        if self.images is None and self.quick:
            return quick_images(subject.block.setting)
        return self.images

    def experiments(self) -> list[Experiment]:
        """All of them, each once."""
        cells = [cell for block in self.planned for cell in block.values()]
        return list(dict.fromkeys(each for cell in cells for each in cell))

    def announcement(self) -> list[str]:
        """What will be run, what not, and whether it can be compared."""
        lines = [self.table.title]
        for subject in self.subjects:
            how = f"network {subject.network}, images {subject.data}"
            images = self.images_of(subject)
            how += f", {images} of each corruption and severity" if images else ""
            lines.append(f"{subject.block.title}: {how}")
            lines += self._shortened(subject, images)
        return [*lines, *self.not_run(), *self.warning()]

    def not_run(self) -> list[str]:
        """The blocks of the paper's table that are not in this one, and why."""
        return [f"left out: {reason}" for reason in self.left_out]

    def _shortened(self, subject: Subject, images: int | None) -> list[str]:
        """A batch never reaches into the next corruption, unless they are mixed."""
        largest = max(self.sizes_of(subject))
        if images is None or images >= largest or subject.block.setting == "mixed":
            return []
        return [f"  (batches of more than {images} cannot be had: they hold {images} instead)"]

    def warning(self) -> list[str]:
        """Said loudly, above and below the table, if its numbers are not the paper's kind."""
        found = [
            *dict.fromkeys(reason for each in self.subjects for reason in each.differences()),
            *(["fewer images"] if any(map(self.images_of, self.subjects)) else []),
        ]
        return [f"*** NOT COMPARABLE with the paper: {'; '.join(found)} ***"] if found else []

    def comparisons(self, records: Sequence[Record]) -> list[Comparison]:
        """One a block."""
        from realistic_tta.benchmark.comparison import compare, mean_errors

        return [
            compare(
                self.table,
                subject.block,
                self.rows,
                self.sizes_of(subject),
                mean_errors(planned, records),
            )
            for subject, planned in zip(self.subjects, self.planned, strict=True)
        ]

    def show(self, records: Sequence[Record]) -> None:
        """The table, with the warning on both sides of it."""
        from .reproduce_display import footnotes, print_markdown, print_rich, print_text

        comparisons, warning = self.comparisons(records), self.warning()
        above = [self.table.title, *warning]
        below = [*footnotes(comparisons, records), *self.not_run(), *warning]
        if self.markdown:
            print_markdown(above, comparisons, below)
        elif sys.stdout.isatty():
            print_rich(above, comparisons, below)
        else:
            print_text(above, comparisons, below)


def _given(arguments: argparse.Namespace, name: str) -> Any:
    value = getattr(arguments, name)
    return None if value is None or value == "all" else listed(name, value)


def _images(arguments: argparse.Namespace) -> int | None:
    if arguments.images is None:
        return None
    images = listed("images", arguments.images)
    if len(images) != 1:
        raise ValueError(f'images is "{arguments.images}"; expected one number')
    return int(images[0])
