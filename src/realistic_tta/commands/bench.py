"""`rtta bench`: methods x batch sizes x settings x data sets, on every core, resumable."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.runner import Job
    from realistic_tta.datasets.generate import Progress
    from realistic_tta.results import Results

    from .bench_board import Board

OUT = Path("rtta-bench")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `bench`."""
    bench = commands.add_parser(
        "bench",
        help="measure methods at batch sizes in settings; interrupted, it goes on",
        description="Runs every combination and keeps a record of each (`rtta results`). What is "
        "done is never run again; what was interrupted goes on in the middle.",
    )
    axes = bench.add_argument_group("what to run; each a name or several, 1,2,3")
    axes.add_argument("--data", metavar="LIST", help="cifar10-c (default), cifar100-c, imagenet-c")
    axes.add_argument("--network", metavar="LIST", help="see `rtta networks`; default: embedded")
    axes.add_argument("--methods", metavar="LIST", dest="method", help="default: all")
    axes.add_argument(
        "--batch-sizes", metavar="LIST", dest="batch_size", help="default: 200,64,16,4,2,1"
    )
    axes.add_argument("--setting", metavar="LIST", help="default: continual")
    axes.add_argument("--seeds", metavar="LIST", dest="seed", help="default: 1")
    axes.add_argument("--images", metavar="N", help="of every corruption; default: all")
    axes.add_argument("--order", help="shuffled (default, the reference framework) or file")
    axes.add_argument("--delta", help="of correlated settings: Dirichlet; default: sorted by label")
    axes.add_argument("--file", type=Path, metavar="TOML", help="a grid; options above win over it")
    bench.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    bench.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    bench.add_argument(
        "--save-every", type=float, default=120, metavar="SECONDS", help="the state of each run"
    )
    bench.add_argument("--dry-run", action="store_true", help="list what would run, and how long")
    bench.set_defaults(run=_bench)


def _bench(arguments: argparse.Namespace) -> None:
    import torch

    from realistic_tta.benchmark.engines import run_local
    from realistic_tta.benchmark.estimate import images_of, work
    from realistic_tta.benchmark.runner import make_jobs
    from realistic_tta.results import Results

    from .bench_board import Board
    from .bench_display import display

    torch.set_num_threads(1)
    if arguments.workers < 1:
        raise ValueError(f"workers is {arguments.workers}; expected 1 or more")
    experiments = _experiments(arguments)
    if arguments.dry_run:
        _dry_run(experiments, arguments)
        return
    results = Results(arguments.out)
    _prepare(experiments, arguments)
    jobs = make_jobs(experiments, arguments.out)
    costs = {job.key: work(job.experiment, images_of(job.experiment)) for job in jobs}
    jobs.sort(key=lambda job: -costs[job.key])  # the longest first: no core idles at the end
    done = [results.get(job.key) for job in jobs if results.done(job.key)]
    _tell_exchanged(jobs, results)
    board = Board(jobs, costs, done)
    events = run_local(jobs, arguments.out, arguments.workers, save_every=arguments.save_every)
    display(board, events)
    _close(board, jobs, results)


def _experiments(arguments: argparse.Namespace) -> list[Experiment]:
    """What the file says, and over it what the options say."""
    from realistic_tta.benchmark.data import available
    from realistic_tta.benchmark.experiment import AXES, grid, read_grid

    axes, settings = read_grid(arguments.file) if arguments.file else ({}, {})
    given = {name: getattr(arguments, name) for name in AXES}
    axes |= {name: _listed(name, text) for name, text in given.items() if text is not None}
    named = axes.get("data", AXES["data"])
    named = named if isinstance(named, list) else [named]
    axes["data"] = [available(name) for name in named]
    for name, there in zip(named, axes["data"], strict=True):
        if there != name:
            print(
                f"{name} is not on disk (`rtta data get {name}` fetches it): running on {there}, "
                "the package's own 2,000 images, corrupted here. "
                "Such figures cannot be compared with published ones."
            )
    return grid(axes, settings)


NUMBERS: dict[str, Callable[[str], Any]] = {
    "batch_size": int,
    "seed": int,
    "images": int,
    "delta": float,
}


def _listed(name: str, text: str) -> Any:
    if name == "method" and text == "all":
        return text
    try:
        return [NUMBERS.get(name, str)(word.strip()) for word in text.split(",")]
    except ValueError:
        raise ValueError(f'{name} is "{text}"; expected numbers such as 4,2,1') from None


def _dry_run(experiments: Sequence[Experiment], arguments: argparse.Namespace) -> None:
    """Writes nothing, not even the folder."""
    from realistic_tta.benchmark.estimate import seconds
    from realistic_tta.results import Results

    there = Results(arguments.out).read(status="done") if arguments.out.exists() else []
    done = {record.experiment for record in there}
    left = [each for each in experiments if each.id not in done]
    print(f"{len(experiments)} experiments, {len(experiments) - len(left)} of them done:")
    estimates = seconds(left)
    for each, estimate in zip(left, estimates, strict=True):
        print(f"  {each.id}  about {in_words(estimate):>7}  {each.describe()}")
    whole = max([sum(estimates) / arguments.workers, *estimates])
    print(f"about {in_words(whole)} with {arguments.workers} workers")


def in_words(seconds: float) -> str:
    """A duration for people.

    >>> in_words(42.4), in_words(600), in_words(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _prepare(experiments: Sequence[Experiment], arguments: argparse.Namespace) -> None:
    """Corrupts the package's images, once for each choice of severities and images."""
    from realistic_tta.benchmark.data import prepare

    def tell(progress: Progress) -> None:
        if progress.done == progress.pieces:
            print(f"{progress.name} written", flush=True)

    for data, plan in dict.fromkeys((each.data, each.plan) for each in experiments):
        prepare(data, plan, arguments.out, arguments.workers, tell)


def _tell_exchanged(jobs: Sequence[Job], results: Results) -> None:
    """Says why what was done is run again."""
    there = {record.experiment for record in results.read(status="done")}
    anew = [j for j in jobs if j.experiment.id in there and not results.done(j.key)]
    if anew:
        print(
            f"{len(anew)} experiments were done with other weights or other images, and are "
            "measured anew; the old records stay"
        )


def _close(board: Board, jobs: Sequence[Job], results: Results) -> None:
    """The tables, and an error if an experiment failed."""
    from .results import in_order, print_pivots

    wanted = {job.key for job in jobs}
    records = in_order([record for record in results.read() if record.key in wanted])
    print_pivots(records, "method", "batch_size", "error")
    print(f"\n{len(records)} records in {results.folder}; `rtta results --dir {results.folder}`")
    failed = [record for record in records if record.status == "failed"]
    for record in failed:
        print(f"failed: {record.method}, batch size {record.batch_size}: {record.message}")
    if failed:
        raise ValueError(f"{len(failed)} of {len(board.jobs)} experiments failed")
