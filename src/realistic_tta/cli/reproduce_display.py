"""A table of the paper beside the measured one: as plain text, as Markdown, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from realistic_tta.benchmark.comparison import Comparison, Mark, marks
from realistic_tta.benchmark.paper_tables import Column, Row
from realistic_tta.benchmark.results import Record

from .bench_run import in_words

Line = tuple[str, ...]
Styles = Mapping[Mark | None, str]
TEXT: Styles = {"best": "{}*", "second": "{}+", None: "{} "}  # always a place, so that digits align
MARKDOWN: Styles = {"best": "**{}**", "second": "<u>{}</u>", None: "{}"}
RICH: Styles = {"best": "[bold green]{}[/]", "second": "[underline]{}[/]", None: "{}"}
NAMES = 3  # columns that name a row


def head(comparison: Comparison) -> Line:
    """What names a row, then the batch sizes and the average."""
    return ("", "", "method", *map(str, comparison.columns))


def sections(comparison: Comparison, styles: Styles) -> list[list[Line]]:
    """Measured, paper, difference: the rows of each, in the paper's order."""
    parts = {
        "measured": (comparison.measured, "{:.2f}"),
        "paper": (comparison.paper, "{:.2f}"),
        "difference": (comparison.difference, "{:+.2f}"),
    }
    shown = []
    for name, (figures, form) in parts.items():
        marked = {} if name == "difference" else marks(figures, comparison.rows)
        cells = {
            place: styles[marked.get(place)].format(form.format(figure))
            for place, figure in figures.items()
        }
        shown.append([_line(name, row, cells, comparison, styles) for row in comparison.rows])
    return shown


def _line(
    name: str,
    row: Row,
    cells: Mapping[tuple[str, Column], str],
    comparison: Comparison,
    styles: Styles,
) -> Line:
    nothing = styles[None].format("-")
    shown = [cells.get((row.method, column), nothing) for column in comparison.columns]
    return (name, row.kind, row.label, *shown)


def text(comparison: Comparison) -> str:
    """Aligned columns, each section named in its first row."""
    parts = [_named_once(part) for part in sections(comparison, TEXT)]
    heading = tuple(f"{word} " for word in head(comparison))  # the marks' place
    lines = [heading, *(line for part in parts for line in part)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [_align(line, widths) for line in lines]
    for before in (1, 1 + len(parts[0]), 1 + 2 * len(parts[0])):
        aligned[before] = "\n" + aligned[before]
    return f"\n{comparison.block.title}, error in percent\n" + "\n".join(aligned)


def _named_once(lines: Sequence[Line]) -> list[Line]:
    return [lines[0], *(("", *line[1:]) for line in lines[1:])]


def _align(line: Line, widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if place < NAMES else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    return " ".join(cells).rstrip()


def markdown(comparison: Comparison) -> str:
    """A title and a table."""
    heading = head(comparison)
    rule = ["---"] * NAMES + ["---:"] * (len(heading) - NAMES)
    rows = [line for part in sections(comparison, MARKDOWN) for line in part]
    lines = ["| " + " | ".join(line) + " |" for line in (heading, tuple(rule), *rows)]
    return f"**{comparison.block.title}**, error in percent\n\n" + "\n".join(lines)


def print_text(
    above: Sequence[str], comparisons: Sequence[Comparison], below: Sequence[str]
) -> None:
    """Into a file or a pipe."""
    print("\n".join(["", *above, *map(text, comparisons), "", *below]))


def print_markdown(
    above: Sequence[str], comparisons: Sequence[Comparison], below: Sequence[str]
) -> None:
    """For a document: a paragraph a line, what is loud in bold."""
    lines = [*above, *map(markdown, comparisons), *below]
    print("\n" + "\n\n".join(f"**{x.strip('* ')}**" if x.startswith("***") else x for x in lines))


def print_rich(
    above: Sequence[str], comparisons: Sequence[Comparison], below: Sequence[str]
) -> None:
    """On a terminal."""
    console = Console(highlight=False)
    _print_lines(console, ["", *above])
    for comparison in comparisons:
        console.print(rich_table(comparison))
    _print_lines(console, below)


def rich_table(comparison: Comparison) -> Table:
    """One table a block, a rule between its sections."""
    title = f"{comparison.block.title}, error in percent"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_style="bold", title_justify="left")
    for place, name in enumerate(head(comparison)):
        table.add_column(name, justify="left" if place < NAMES else "right")
    for part in sections(comparison, RICH):
        for line in _named_once(part):
            table.add_row(*line)
        table.add_section()
    return table


def _print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, markup=False, style="bold red" if line.startswith("***") else "")


def footnotes(comparisons: Sequence[Comparison], records: Sequence[Record]) -> list[str]:
    """What the marks and names mean, what is wrong in the paper's own table, what it took."""
    renamed = [row for row in comparisons[0].rows if row.label in ("Baseline", "Ours")]
    names = ", ".join(f"{row.label} is {row.method}" for row in renamed)
    blocks = [comparison.block for comparison in comparisons]
    seconds = sum(record.seconds or 0 for record in records)
    devices = ", ".join(sorted({record.device for record in records if record.device}))
    return [
        "Difference: measured minus paper, in points. TR: training required, TF: training-free.",
        "Marked: best and second best of the training-free methods. "
        + (f"{names}." if names else ""),
        *(f"A slip of the paper, {b.title}: {slip}." for b in blocks for slip in b.slips),
        f"{len(records)} experiments, {in_words(seconds)} of computing; device: {devices}.",
    ]
