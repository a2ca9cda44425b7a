"""`rtta demo`: adaptation on corrupted photographs, with the package's own model and images."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import add_axes, cores, positive
from .run import failures, run_experiments

if TYPE_CHECKING:
    from rich.table import Table

    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.results import Record

    from .progress import RunProgress

    Errors = Mapping[tuple[str, int], float]  # percent, by method and batch size

MODEL, DATASET = "cifar10", "cifar10-c-sample"
STATISTICS = {  # the methods of the demo, and where their statistics come from
    "source": "training",
    "tbn": "current batch",
    "alpha_bn": "training 9 : 1 batch",
    "adapt_bn": "both, by image count",
    "tema": "stream average",
    "rectified_tema": "training and stream",
    "realistic": "both, by uncertainty",
}
BATCH_SIZES = [64, 4, 1]
OURS, USUAL = "realistic", "tbn"
WORSE = "✗"
SHOWN = 17  # the photograph in the picture: a horse


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `demo`."""
    demo = commands.add_parser(
        "demo",
        help="compare methods on corrupted photographs; takes minutes, downloads nothing",
        description="Runs seven methods at three batch sizes on fifteen corruptions of the "
        "package's photographs. Resumes after an interruption.",
    )
    demo.add_argument("--out", type=Path, default=Path("rtta-demo"), metavar="DIR")
    add_axes(demo, methods="names, or all; default: seven", batch_sizes="default: 64,4,1")
    demo.add_argument("--images", type=positive, default=256, metavar="N", help="per corruption")
    demo.add_argument("--seed", type=int, default=1, help="of the order of the photographs")
    demo.add_argument("--workers", type=positive, default=cores())
    demo.set_defaults(run=_demo, batch_sizes=BATCH_SIZES, methods=list(STATISTICS))


def _demo(arguments: argparse.Namespace) -> int:
    import torch
    from rich.console import Console

    from realistic_tta import METHODS, __version__
    from realistic_tta.benchmark.engines import run_local
    from realistic_tta.report.demo_picture import demo_picture
    from realistic_tta.report.page import write_page
    from realistic_tta.report.style import write_figure

    torch.set_num_threads(1)  # each worker has its own core
    if arguments.methods == ["all"]:
        arguments.methods = list(METHODS)
    methods, sizes, out = arguments.methods, arguments.batch_sizes, arguments.out
    planned = experiments(methods, sizes, arguments.images, arguments.seed)
    console, start = Console(highlight=False), time.monotonic()
    console.print(
        f"A ResNet-20 has {clean_error():.1f} % error on clean CIFAR-10 photographs. Now it sees "
        f"{arguments.images} photographs in each of fifteen corruptions: noise, blur, weather, "
        "compression. It gets no labels, and is not told when the corruption changes.\n"
    )
    records, known = run_experiments(
        planned,
        out,
        arguments.workers,
        lambda jobs: run_local(jobs, out, arguments.workers),
        partial(progress_table, methods=methods, sizes=sizes),
    )
    errors = errors_of(records, sizes)
    console.print(table(errors, methods, sizes))
    console.print(headline(errors, sizes))
    shown = min(SHOWN, arguments.images - 1)
    images = photographs(planned[0], out, shown)
    write_figure(demo_picture(records, errors, methods, sizes, images), out / "demo.png")
    write_page(records, out, out / "report.html", __version__)
    console.print(f"\nPicture: {out / 'demo.png'}; interactive page: {out / 'report.html'}")
    console.print(f"{time.monotonic() - start:.0f} seconds with {arguments.workers} workers.")
    if known:
        console.print(f"{known} of {len(records)} results existed; delete {out} to measure again.")
    return failures(records)


def experiments(
    methods: Sequence[str], sizes: Sequence[int], images: int, seed: int
) -> list[Experiment]:
    """One experiment per cell; the source model is run once, as it ignores the batch size."""
    from realistic_tta.benchmark.experiment import Experiment

    return [
        Experiment(MODEL, DATASET, "continual", method, size, seed=seed, images=images)
        for method in methods
        for size in (sizes[:1] if method == "source" else sizes)
    ]


def clean_error() -> float:
    """The source model's error on the clean CIFAR-10 test set, in percent, from its card."""
    from realistic_tta.models.registry import EMBEDDED

    card = json.loads((EMBEDDED / f"{MODEL}.json").read_text())
    return float(card["clean_error"])


def photographs(experiment: Experiment, folder: Path, shown: int) -> list[tuple[str, Any]]:
    """One photograph under every corruption: name and (row, column, color)."""
    import numpy as np

    from realistic_tta.benchmark.datasets import open_stream

    stream = open_stream(DATASET, experiment.plan, folder)
    pairs = zip(stream.parts, stream.contents, strict=True)
    return [(part.corruption, images.take(np.array([shown]))[0]) for part, images in pairs]


def errors_of(records: Iterable[Record], sizes: Sequence[int]) -> dict[tuple[str, int], float]:
    """The known errors by method and batch size; the source's holds for every batch size."""
    known: dict[tuple[str, int], float] = {}
    for record in records:
        if record.error is not None:
            held = sizes if record.method == "source" else (record.batch_size,)
            known |= {(record.method, size): record.error for size in held}
    return known


def is_worse(errors: Errors, method: str, size: int) -> bool:
    """Whether the method is known to be worse than the source model."""
    error, source = errors.get((method, size)), errors.get(("source", size))
    return error is not None and source is not None and error > source


def headline(errors: Errors, sizes: Sequence[int]) -> str:
    """The result in two sentences; empty if one of the three methods is missing."""
    large, small = sizes[0], sizes[-1]
    cells = [("source", small), (OURS, small), (USUAL, large), (USUAL, small)]
    if not all(cell in errors for cell in cells):
        return ""
    source, ours, usual_large, usual = (errors[cell] for cell in cells)
    return (
        f"At batch size {small}, {OURS} changes the error from {source:.1f} to {ours:.1f} %. "
        f"Batch statistics alone ({USUAL}) have {usual_large:.1f} % error at batch size {large} "
        f"and {usual:.1f} % at {small}."
    )


def progress_table(progress: RunProgress, methods: Sequence[str], sizes: Sequence[int]) -> Table:
    """The table of the errors known so far."""
    known: dict[tuple[str, int], float] = {}
    for job in progress.jobs:
        if job.key in progress.errors and job.key not in progress.running:
            held = sizes if job.experiment.method == "source" else [job.experiment.batch_size]
            error = progress.errors[job.key]
            known |= {(job.experiment.method, size): error for size in held}
    return table(known, methods, sizes)


def table(errors: Errors, methods: Sequence[str], sizes: Sequence[int]) -> Table:
    """The error by method and batch size; errors above the source model's are marked."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, title="error (%) by batch size", title_style="")
    shown.add_column("method")
    shown.add_column("statistics from", style="dim")
    for size in sizes:
        shown.add_column(str(size), justify="right")
    for method in methods:
        cells = []
        for size in sizes:
            worse, error = is_worse(errors, method, size), errors.get((method, size))
            text = "…  " if error is None else f"{error:.1f} {WORSE if worse else ' '}"
            cells.append(Text(text, style="red" if worse else "dim" if error is None else ""))
        style = "bold" if method == OURS else ""
        shown.add_row(method, STATISTICS.get(method, ""), *cells, style=style)
    if any(is_worse(errors, *cell) for cell in errors):
        shown.caption = f"{WORSE} worse than the source model"
        shown.caption_justify = "right"
    return shown
