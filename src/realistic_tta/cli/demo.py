"""`rtta demo`: adaptation repairs a real network on real photographs, before your eyes."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from realistic_tta.benchmark.results import Record
    from realistic_tta.demo.experiment import Setup


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `demo`."""
    demo = commands.add_parser(
        "demo",
        help="see adaptation repair a network on damaged photographs: minutes, no download",
        description="Seven methods, three batch sizes, fifteen corruptions of the photographs that "
        "come with the package. Interrupted, it goes on; done, it shows what it found.",
    )
    demo.add_argument("--out", type=Path, default=Path("rtta-demo"), metavar="DIR")
    demo.add_argument("--methods", metavar="LIST", help="names, or `all`; by default seven")
    demo.add_argument("--batch-sizes", default="64,4,1", metavar="LIST")
    demo.add_argument("--images", type=int, default=256, metavar="N", help="in each corruption")
    demo.add_argument("--seed", type=int, default=1, help="of the photographs' order")
    demo.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    import torch
    from rich.console import Console

    from realistic_tta import __version__
    from realistic_tta.demo.display import results
    from realistic_tta.demo.experiment import clean_error
    from realistic_tta.demo.picture import draw
    from realistic_tta.demo.words import errors_of, headline
    from realistic_tta.report.page import write_page

    from .results import in_order

    torch.set_num_threads(1)  # each worker has a core to itself
    if arguments.workers < 1:
        raise ValueError(f"workers is {arguments.workers}; expected 1 or more")
    console, start = Console(highlight=False), time.monotonic()
    setup, out = _setup(arguments), arguments.out
    setup.experiments()  # raises for what cannot be run
    console.print(
        f"A ResNet-20 gets {clean_error():.1f} % of clean CIFAR-10 photographs wrong. Now they "
        f"come damaged in fifteen ways, one after another, {setup.images} of each: noise, blur, "
        "weather, compression. The network is not told, has no labels, and carries on.\n"
    )
    records, known = _run(setup, arguments, console)
    errors = errors_of(records, setup)
    console.print(results(errors, setup))
    console.print(headline(errors, setup))
    draw(records, setup, out, out / "demo.png")
    write_page(in_order(records), out, out / "report.html", __version__)
    console.print(f"\nPicture: {out / 'demo.png'}; a page to explore: {out / 'report.html'}")
    console.print(f"{time.monotonic() - start:.0f} seconds, {arguments.workers} at work.")
    if known:
        there = f"{known} of {len(records)} figures were there"
        console.print(f"{there}; without {out} all are measured anew.")
    failed = [record for record in records if record.message]
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(records)} figures failed, the first with: {failed[0].message}"
        )


def _run(setup: Setup, arguments: argparse.Namespace, console: Console) -> tuple[list[Record], int]:
    """The records of all experiments, and how many were there before."""
    from realistic_tta.benchmark.data import prepare
    from realistic_tta.benchmark.engines import run_local
    from realistic_tta.benchmark.estimate import longest_first
    from realistic_tta.benchmark.results import Results
    from realistic_tta.benchmark.runner import make_jobs
    from realistic_tta.demo.display import Display
    from realistic_tta.demo.experiment import DATA
    from realistic_tta.demo.words import errors_of

    from .bench_progress import Board

    experiments, store = setup.experiments(), Results(arguments.out)
    with console.status("damaging the photographs"):
        prepare(DATA, experiments[0].plan, arguments.out, arguments.workers)
    costs = longest_first(make_jobs(experiments, arguments.out))
    jobs = list(costs)
    done = [store.get(job.key) for job in jobs if store.done(job.key)]
    board = Board(costs, done)
    with Display(console, setup) as display:
        for event in run_local(jobs, arguments.out, arguments.workers):
            board.update(event)
            known = errors_of([*done, *board.records.values()], setup)
            display(event, board.share(), known)
    return [store.get(job.key) for job in jobs], len(done)


def _setup(arguments: argparse.Namespace) -> Setup:
    from realistic_tta.demo.experiment import Setup
    from realistic_tta.methods.catalogue import METHODS

    try:
        sizes = dict.fromkeys(int(word) for word in arguments.batch_sizes.split(","))
    except ValueError:
        raise ValueError(
            f'batch sizes are "{arguments.batch_sizes}"; expected numbers such as 64,4,1'
        ) from None
    names = {None: Setup.methods, "all": tuple(METHODS)}.get(arguments.methods)
    methods = names or tuple(dict.fromkeys(arguments.methods.split(",")))
    return Setup(methods, tuple(sizes), arguments.images, arguments.seed)
