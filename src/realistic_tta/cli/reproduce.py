"""`rtta reproduce`: runs a table of the paper and prints it beside the paper's numbers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from realistic_tta.errors import OptionError

from .options import add_axes, positive
from .run import add_run_options, run
from .terminal import columns_as_text, has_styles, marked

if TYPE_CHECKING:
    from realistic_tta.benchmark.comparison import Comparison, Errors
    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.reproduction import Subject
    from realistic_tta.benchmark.results import Record

    Mark = Callable[[str, int], str]

TABLES = ("continual_cifar", "continual_imagenet", "mixed_gradual", "ablation")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `reproduce`."""
    reproduce = commands.add_parser(
        "reproduce",
        help="run a table of the paper and print it beside the paper's numbers",
        description="Runs on the paper's models and datasets; if they are not on disk, says where "
        "to get them. Finished experiments are not run again, as in `rtta bench`.",
    )
    reproduce.add_argument("table", choices=TABLES)
    axes = reproduce.add_argument_group("what to run; by default the whole table")
    add_axes(
        axes,
        models="embedded, or one of `rtta models`; default: the paper's",
        datasets="only the blocks of these",
        methods="only these rows",
        batch_sizes="only these columns",
        seeds="averaged; default: 1",
    )
    axes.add_argument("--images", type=positive, metavar="N", help="per corruption and severity")
    axes.add_argument(
        "--quick", action="store_true", help="200 images per corruption, batch sizes 200, 16, 1"
    )
    reproduce.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    add_run_options(reproduce)
    reproduce.set_defaults(run=_reproduce)


def _reproduce(arguments: argparse.Namespace) -> int:
    reproduction = Reproduction(arguments)
    print("\n".join(reproduction.announcement()), end="\n\n", flush=True)
    return run(reproduction.experiments(), arguments, reproduction.show)


class Reproduction:
    """The blocks, rows and columns of one call, and the experiments for them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from realistic_tta.benchmark.paper_tables import TABLES
        from realistic_tta.benchmark.reproduction import (
            choose_rows,
            experiments_of,
            find_subjects,
        )

        models = arguments.models or [None]
        if len(models) > 1:
            raise OptionError(f"models is {','.join(models)}; expected one model")
        self.arguments, self.table = arguments, TABLES[arguments.table]
        methods = None if arguments.methods == ["all"] else arguments.methods
        self.rows = choose_rows(self.table, methods)
        self.subjects, self.skipped = find_subjects(self.table, models[0], arguments.datasets)
        names, seeds = [row.method for row in self.rows], arguments.seeds or [1]
        self.planned = [
            experiments_of(each, names, self.sizes_of(each), seeds, self.images_of(each))
            for each in self.subjects
        ]

    def sizes_of(self, subject: Subject) -> list[int]:
        """The columns of a block."""
        if self.arguments.batch_sizes:
            return sorted(self.arguments.batch_sizes, reverse=True)
        sizes = list(subject.block.batch_sizes)
        return [sizes[0], 16, 1] if self.arguments.quick else sizes

    def images_of(self, subject: Subject) -> int | None:
        """The number of images per part; None for all."""
        from realistic_tta.benchmark.reproduction import quick_images

        if self.arguments.images is None and self.arguments.quick:
            return quick_images(subject.block.scenario)
        images: int | None = self.arguments.images
        return images

    def experiments(self) -> list[Experiment]:
        """All experiments, each once."""
        cells = [cell for block in self.planned for cell in block.values()]
        return list(dict.fromkeys(each for cell in cells for each in cell))

    def announcement(self) -> list[str]:
        """The blocks that will be run, those that are skipped, and a warning."""
        lines = [self.table.title]
        for subject in self.subjects:
            how = f"model {subject.model}, images {subject.dataset}"
            images = self.images_of(subject)
            how += f", {images} per corruption and severity" if images else ""
            lines.append(f"{subject.block.title}: {how}")
            crossing = subject.block.scenario == "mixed"  # batches may cross corruptions
            if images and images < max(self.sizes_of(subject)) and not crossing:
                lines.append(f"  (larger batches than {images} are cut to {images} images)")
        return [*lines, *self.notes()]

    def notes(self) -> list[str]:
        """The blocks that are skipped, and a warning if the results are not comparable."""
        found = [
            *dict.fromkeys(reason for each in self.subjects for reason in each.differences()),
            *(["fewer images"] if any(map(self.images_of, self.subjects)) else []),
        ]
        warning = f"*** NOT COMPARABLE with the paper: {'; '.join(found)} ***"
        return [*(f"skipped: {reason}" for reason in self.skipped), *([warning] if found else [])]

    def show(self, records: Sequence[Record]) -> None:
        """Prints the table, with the notes above and below it."""
        from realistic_tta.benchmark.comparison import compare, mean_errors

        comparisons = [
            compare(self.table, s.block, self.rows, self.sizes_of(s), mean_errors(p, records))
            for s, p in zip(self.subjects, self.planned, strict=True)
        ]
        markdown = self.arguments.markdown
        body = map(markdown_table if markdown else text_table, comparisons)
        lines = [
            self.table.title,
            *self.notes(),
            *body,
            *footnotes(comparisons, records),
            *self.notes(),
        ]
        if markdown:
            lines = [f"**{x.strip('* ')}**" if x.startswith("***") else x for x in lines]
        print("\n" + ("\n\n" if markdown else "\n").join(lines))


def table_rows(comparison: Comparison, mark: Mark) -> list[list[tuple[str, ...]]]:
    """The rows of the three sections: measured, paper, difference."""
    from realistic_tta.benchmark.comparison import ranks

    def section(name: str, errors: Errors, form: str) -> list[tuple[str, ...]]:
        ranked = {} if name == "difference" else ranks(errors, comparison.rows)
        columns = comparison.columns
        cells = {cell: mark(form.format(e), ranked.get(cell, 0)) for cell, e in errors.items()}
        return [
            (name, row.kind, row.label, *(cells.get((row.method, c), "     -") for c in columns))
            for row in comparison.rows
        ]

    return [
        section("measured", comparison.measured, "{:6.2f}"),
        section("paper", comparison.paper, "{:6.2f}"),
        section("difference", comparison.difference, "{:+6.2f}"),
    ]


def text_table(comparison: Comparison) -> str:
    """Aligned columns; each section is named in its first row."""
    styles = has_styles()
    parts = table_rows(comparison, lambda text, rank: marked(text, rank, styles=styles))
    parts = [[part[0], *(("", *row[1:]) for row in part[1:])] for part in parts]
    head = ("", "", "method", *(f"{column:>6}" for column in comparison.columns))
    lines = columns_as_text([head, *(row for part in parts for row in part)], gap=" ")
    for place in range(len(parts)):
        first = 1 + place * len(comparison.rows)
        lines[first] = "\n" + lines[first]
    return f"\n{comparison.block.title}, error in percent\n" + "\n".join(lines) + "\n"


def markdown_table(comparison: Comparison) -> str:
    """A title and a Markdown table."""
    forms = ("{}", "**{}**", "<u>{}</u>")
    parts = table_rows(comparison, lambda text, rank: forms[rank].format(text.strip()))
    head = ("", "", "method", *map(str, comparison.columns))
    rule = ("---",) * 3 + ("---:",) * len(comparison.columns)
    rows = [head, rule, *(row for part in parts for row in part)]
    lines = ["| " + " | ".join(map(str.strip, row)) + " |" for row in rows]
    return f"**{comparison.block.title}**, error in percent\n\n" + "\n".join(lines)


def footnotes(comparisons: Sequence[Comparison], records: Sequence[Record]) -> list[str]:
    """The meaning of marks and names, errata of the paper, and the time taken."""
    from .progress import duration

    renamed = [row for row in comparisons[0].rows if row.label in ("Baseline", "Ours")]
    names = ", ".join(f"{row.label} is {row.method}" for row in renamed)
    blocks = [comparison.block for comparison in comparisons]
    seconds = sum(record.seconds or 0 for record in records)
    devices = ", ".join(sorted({record.device for record in records if record.device}))
    return [
        "Difference: measured minus paper, in points. TR: training required, TF: training-free.",
        "Marked: best and second best training-free method. " + (f"{names}." if names else ""),
        *(f"Erratum of the paper, {b.title}: {text}." for b in blocks for text in b.errata),
        f"{len(records)} experiments, {duration(seconds)} of computing; device: {devices}.",
    ]
