"""Prints the verdict from the records of verdict.toml, as Markdown.

    python benchmarks/verdict/table.py benchmarks/verdict/records.tar.xz
    python benchmarks/verdict/table.py rtta-verdict

First comes a summary, then one table per claim with a row per model. A cell is a difference of
errors in percentage points, as mean and standard error over the seeds; each seed shows both methods
the same stream. The column "source" is an error. A cell above the limit of its claim is marked, and
listed again at the end.
"""

from __future__ import annotations

import sys
import tarfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import NamedTuple

from realistic_tta.benchmark.exports import error_in_first, latest
from realistic_tta.benchmark.results import FIRST_IMAGES, Record, Results

MODELS = (  # A to G in the summary
    "resnet-56",
    "resnet-20-hard-labels",
    "resnet-20-soft-labels",
    "wrn-16-2-augmix",
    "resnet-20-cifar100-slow-statistics",
    "resnet-50-keras",
    "efficientnet-lite0",
)
CHANGE = 50  # images after a change of the corruption that are counted separately
Figure = Callable[[Record], float | None]


class Stream(NamedTuple):
    """The records that can be compared, seed by seed."""

    dataset: str
    model: str
    scenario: str
    severity: int
    delta: float | None

    def name(self) -> str:
        """The stream without its model.

        >>> Stream("cifar10-c", "resnet-56", "correlated", 5, None).name()
        'correlated, sorted'
        """
        words = [self.scenario]
        words += [f"severity {self.severity}"] if self.severity != 5 else []
        if "correlated" in self.scenario:
            words += ["sorted" if self.delta is None else f"delta {self.delta}"]
        return ", ".join(words)


class Mean(NamedTuple):
    """Mean and standard error over seeds."""

    mean: float
    error: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")


class Row(NamedTuple):
    """A claim on one model: a cell per column.

    limit: None if the row is only shown.
    source: the error of the source on this stream, if the claim compares with it.
    """

    claim: str
    model: str
    cells: dict[str, Mean | None]
    limit: float | None
    source: Mean | None = None


def mean(values: Sequence[float]) -> Mean | None:
    """The mean over seeds with its standard error."""
    if not values:
        return None
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return Mean(fmean(values), error)


def error_after_first(record: Record, images: int) -> float | None:
    """The mean over the parts of the error after their first images; None if there are no more."""
    place = FIRST_IMAGES.index(images)
    longer = [part for part in record.parts if part.images > images]
    wrong = [100 * (p.wrong - p.wrong_in_first[place]) / (p.images - images) for p in longer]
    return fmean(wrong) if wrong else None


class Verdict:
    """Records by stream, method, batch size and seed."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.found: dict[Stream, dict[tuple[str, int], dict[int, Record]]] = {}
        for record in latest([each for each in records if each.status == "done"]):
            stream = Stream(*(getattr(record, name) for name in Stream._fields))
            by_method = self.found.setdefault(stream, defaultdict(dict))
            method = "+".join([record.method, *sorted(record.hyperparameters)])
            by_method[method, record.batch_size][record.seed] = record

    def streams(self, scenario: str | None = None, severity: int = 5) -> list[Stream]:
        """The streams of a scenario at one severity, or all streams."""
        found = [s for s in self.found if scenario in (None, s.scenario)]
        found = [s for s in found if scenario is None or s.severity == severity]
        return sorted(found, key=lambda stream: (*stream[:-1], stream.delta or 0))

    def sizes(self, stream: Stream, method: str) -> list[int]:
        """The batch sizes of a method, the largest first."""
        return sorted({size for name, size in self.found[stream] if name == method}, reverse=True)

    def seeds(self, stream: Stream, method: str, size: int | None) -> dict[int, Record]:
        """The records by seed. size: None for the only one of source."""
        sizes = self.sizes(stream, method) if size is None else [size]
        return self.found[stream].get((method, sizes[0]), {}) if sizes else {}

    def difference(
        self,
        stream: Stream,
        one: tuple[str, int | None],
        other: tuple[str, int | None],
        figure: Figure = lambda record: record.error,
    ) -> Mean | None:
        """The figure of one method and batch size minus that of another, on the same streams."""
        first, second = self.seeds(stream, *one), self.seeds(stream, *other)
        same = [s for s in first if s in second and first[s].stream == second[s].stream]
        pairs = [(figure(first[seed]), figure(second[seed])) for seed in same]
        return mean([a - b for a, b in pairs if a is not None and b is not None])

    def mean(self, stream: Stream, method: str, size: int | None, figure: Figure) -> Mean | None:
        """The figure of one method, over seeds."""
        values = [figure(record) for record in self.seeds(stream, method, size).values()]
        return mean([value for value in values if value is not None])


def against_source(
    verdict: Verdict, claim: str, streams: Sequence[Stream], method: str, limit: float | None
) -> list[Row]:
    """The error minus that of the source, at every batch size."""
    rows = []
    for stream in streams:
        sizes = verdict.sizes(stream, method)
        cells = {
            column(size): verdict.difference(stream, (method, size), ("source", None))
            for size in sizes
        }
        title = f"{claim} {stream.name()}: {method} - source"
        source = verdict.mean(stream, "source", None, lambda record: record.error)
        rows += [Row(title, stream.model, cells, limit, source)] if any(cells.values()) else []
    return rows


def batch_size_1(verdict: Verdict) -> list[Row]:
    """Claim a: batch size 1 against the largest, in the first images and after them."""
    rows = []
    figures: tuple[tuple[str, Figure, float], ...] = (
        (f"from image {CHANGE} on", lambda record: error_after_first(record, CHANGE), 0.3),
        (f"first {CHANGE} images", lambda record: error_in_first(record, CHANGE), 5.0),
    )
    for words, figure, limit in figures:
        for stream in verdict.streams("continual"):
            sizes = verdict.sizes(stream, "realistic")
            if 1 not in sizes:
                continue
            ends = ("realistic", 1), ("realistic", sizes[0])
            cell = verdict.difference(stream, *ends, figure)
            title = f"a. continual, {words}: batch size 1 - {sizes[0]}"
            rows += [Row(title, stream.model, {"1": cell}, limit)] if cell else []
    return rows


def other_methods(verdict: Verdict) -> list[Row]:
    """Claim b: against the better of rectified_tema and adapt_bn, at every batch size."""
    rows = []
    for stream in verdict.streams("continual"):
        cells = {}
        for size in verdict.sizes(stream, "realistic"):
            others = [
                verdict.difference(stream, ("realistic", size), (name, size))
                for name in ("rectified_tema", "adapt_bn")
            ]
            found = [each for each in others if each]
            cells[column(size)] = max(found, key=lambda each: each.mean, default=None)
        title = "b. continual: realistic - the better of rectified_tema and adapt_bn"
        rows += [Row(title, stream.model, cells, 0.0)] if any(cells.values()) else []
    return rows


def smooth_labels(verdict: Verdict) -> list[Row]:
    """Claim g: label smoothing against none, in random order and on sorted streams."""
    rows = []
    for scenario, limit in (("continual", 0.3), ("correlated", None)):
        for stream in verdict.streams(scenario):
            method = "realistic+smooth_labels"
            cells = {
                column(size): verdict.difference(stream, (method, size), ("realistic", size))
                for size in verdict.sizes(stream, method)
            }
            title = f"g. {stream.name()}: {method} - realistic"
            rows += [Row(title, stream.model, cells, limit)] if any(cells.values()) else []
    return rows


def claims(verdict: Verdict) -> list[Row]:
    """Every row, in the order of the claims."""
    unlike = ("mixed", "gradual", "correlated", "clean_correlated")
    severities = [s for level in (1, 3, 5) for s in verdict.streams("continual", level)]
    rows = batch_size_1(verdict) + other_methods(verdict)
    rows += against_source(verdict, "c.", verdict.streams("clean"), "realistic", 0.3)
    for scenario in unlike:
        rows += against_source(verdict, "d.", verdict.streams(scenario), "realistic", 0.0)
    for stream in severities:
        limit = 0.3 if stream.severity == 1 else None
        rows += against_source(verdict, "e.", [stream], "realistic", limit)
    rows += against_source(verdict, "f.", verdict.streams(), "realistic+guard", 0.5)
    return rows + smooth_labels(verdict)


def column(size: int) -> str:
    """The column of a batch size; the largest sizes of all data sets share one."""
    return "largest" if size > 16 else str(size)


def missed(row: Row) -> list[str]:
    """The columns whose mean is above the limit."""
    if row.limit is None:
        return []
    return [name for name, cell in row.cells.items() if cell and cell.mean > row.limit]


def tables(rows: Sequence[Row]) -> list[str]:
    """One Markdown table per claim with the misses in it."""
    columns = ("largest", "16", "1")
    lines = []
    by_claim: dict[tuple[str, float | None], list[Row]] = defaultdict(list)
    for row in rows:
        by_claim[row.claim, row.limit].append(row)
    for (claim, most), group in by_claim.items():
        lines += [f"**{claim}**" + ("" if most is None else f"; at most {most:g}"), ""]
        lines += ["| model | source | largest batch size | 16 | 1 |", "|---" * 5 + "|"]
        for row in group:
            cells = [
                ("-" if row.cells.get(name) is None else str(row.cells[name]))
                + (" **miss**" if name in missed(row) else "")
                for name in columns
            ]
            source = "" if row.source is None else f"{row.source.mean:.1f}"
            lines.append(f"| {row.model} | {source} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def summary(rows: Sequence[Row]) -> list[str]:
    """One table: a row per claim, a column per model, in a cell the worst of all batch sizes."""
    letters = [chr(ord("A") + place) for place in range(len(MODELS))]
    lines = [f"| claim | at most | {' | '.join(letters)} |", "|---" * (2 + len(MODELS)) + "|"]
    worst: dict[tuple[str, float | None], dict[str, str]] = defaultdict(dict)
    for row in rows:
        found = max((each for each in row.cells.values() if each), key=lambda each: each.mean)
        mark = "**" if missed(row) else ""
        worst[row.claim, row.limit][row.model] = f"{mark}{found}{mark}"
    for (claim, most), cells in worst.items():
        shown = [cells.get(model, "-") for model in MODELS]
        limit = "" if most is None else f"{most:g}"
        lines.append(f"| {claim} | {limit} | {' | '.join(shown)} |")
    return lines


def table(rows: Sequence[Row]) -> list[str]:
    """The tables of all claims, and a list of all misses."""
    lines = tables(rows)
    misses = [(row, name) for row in rows for name in missed(row)]
    limited = [row for row in rows if row.limit is not None]
    total = sum(cell is not None for row in limited for cell in row.cells.values())
    lines += [f"{len(misses)} of {total} cells with a limit are above it:", ""]
    lines += [
        f"- {row.claim}, {row.model}, batch size {name}: {row.cells[name]}, at most {row.limit:g}"
        for row, name in misses
    ]
    return lines


def first_images(verdict: Verdict) -> list[str]:
    """Claim h: the error in the first images after a reset, beside that of the source."""
    head = " | ".join(f"first {images}" for images in FIRST_IMAGES)
    lines = [f"| model | method | batch size | {head} |", "|---" * (3 + len(FIRST_IMAGES)) + "|"]
    for stream in verdict.streams("reset_each_shift"):
        for method, size in sorted(verdict.found[stream], key=lambda each: (-len(each[0]), each)):
            cells = [
                str(verdict.mean(stream, method, size, lambda r, n=n: error_in_first(r, n)))  # type: ignore[misc]
                for n in FIRST_IMAGES
            ]
            lines.append(f"| {stream.model} | {method} | {size} | {' | '.join(cells)} |")
    return lines


def read(path: Path) -> list[Record]:
    """The records of a folder, or of an archive of such a folder."""
    if path.is_dir():
        return Results(path, create=False).read()
    with TemporaryDirectory() as folder, tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
        return Results(Path(folder), create=False).read()


def text(verdict: Verdict) -> str:
    """All tables as Markdown."""
    head = "**h. continual, reset before each corruption: error in the first images**"
    lines = ["", *table(claims(verdict)), "", head, "", *first_images(verdict), ""]
    return "\n".join(lines) + "\n"


def summary_text(verdict: Verdict) -> str:
    """The summary as Markdown."""
    return "\n".join(["", *summary(claims(verdict)), ""]) + "\n"


def claim_text(verdict: Verdict, claim: str) -> str:
    """The table of one claim, by its letter, as Markdown."""
    rows = [row for row in claims(verdict) if row.claim.startswith(claim)]
    return "\n".join(["", *tables(rows)[2:]]) + "\n"


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python benchmarks/verdict/table.py DIR")
    verdict = Verdict(read(Path(sys.argv[1])))
    print(summary_text(verdict) + text(verdict), end="")


if __name__ == "__main__":
    main()
