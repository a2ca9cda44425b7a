"""Runs experiments for `rtta bench`, `rtta reproduce` and `rtta demo`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from realistic_tta.errors import OptionError

from .options import OUT, cores, positive

if TYPE_CHECKING:
    from rich.table import Table

    from realistic_tta.benchmark.events import Event
    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.results import Record, Results
    from realistic_tta.benchmark.runner import Job
    from realistic_tta.data.generate import Progress

    from .progress import RunProgress

    Engine = Callable[[Sequence[Job]], Iterator[Event]]


def add_run_options(command: argparse.ArgumentParser) -> None:
    """Adds where records are stored, and what runs the experiments."""
    command.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    command.add_argument("--workers", type=positive, default=cores(), metavar="N")
    command.add_argument(
        "--save-every", type=float, default=120, metavar="SECONDS", help="between checkpoints"
    )
    command.add_argument(
        "--traces", action="store_true", help="store per-layer values for `rtta plot`"
    )
    command.add_argument("--dry-run", action="store_true", help="list experiments and their time")
    where = command.add_argument_group("where to run")
    where.add_argument("--engine", choices=["local", "ray"], default="local")
    where.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster; default: auto")
    where.add_argument("--gpus", type=float, help="per experiment on Ray, such as 0.25")


def run(
    experiments: Sequence[Experiment],
    arguments: argparse.Namespace,
    show: Callable[[Sequence[Record]], None],
) -> int:
    """Runs the experiments that are not done, and shows all records; returns the exit code."""
    import torch

    from .progress import error_table

    torch.set_num_threads(1)
    engine = _engine(arguments)
    if arguments.dry_run:
        _dry_run(experiments, arguments)
        return 0
    records, _ = run_experiments(
        experiments,
        arguments.out,
        arguments.workers,
        engine,
        error_table,
        traces=arguments.traces,
    )
    show(records)
    print(f"\n{len(records)} records in {arguments.out}; see `rtta results --dir {arguments.out}`")
    return failures(records)


def failures(records: Sequence[Record]) -> int:
    """Prints the experiments that failed; returns 1 if there are any."""
    failed = [record for record in records if record.status == "failed"]
    for record in failed:
        print(f"failed: {record.method}, batch size {record.batch_size}: {record.message}")
    if failed:
        print(f"{len(failed)} of {len(records)} experiments failed")
    return 1 if failed else 0


def _engine(arguments: argparse.Namespace) -> Engine:
    """The engine; called first, so that a missing cluster is reported before any work."""
    out, save_every = arguments.out, arguments.save_every
    if arguments.engine == "ray":
        from realistic_tta.benchmark.ray_engine import check_address, run_ray

        address, gpus = arguments.address or "auto", arguments.gpus
        check_address(address)
        return lambda jobs: run_ray(jobs, out, address, gpus=gpus, save_every=save_every)
    if arguments.address or arguments.gpus is not None:
        raise OptionError("--address and --gpus require --engine ray")
    from realistic_tta.benchmark.engines import run_local

    return lambda jobs: run_local(jobs, out, arguments.workers, save_every=save_every)


def run_experiments(
    experiments: Sequence[Experiment],
    out: Path,
    workers: int,
    engine: Engine,
    table: Callable[[RunProgress], Table],
    *,
    traces: bool = False,
) -> tuple[list[Record], int]:
    """The records of all experiments, in order, and how many of them existed before."""
    from realistic_tta.benchmark.datasets import prepare
    from realistic_tta.benchmark.estimate import longest_first
    from realistic_tta.benchmark.results import Results
    from realistic_tta.benchmark.runner import is_done, make_jobs

    from .progress import RunProgress, follow
    from .results import in_order

    def report(progress: Progress) -> None:
        if progress.done == progress.pieces:
            print(f"generated {progress.name}", flush=True)

    results = Results(out)
    for dataset, plan in dict.fromkeys((each.dataset, each.plan) for each in experiments):
        prepare(dataset, plan, out, workers, report)
    costs = longest_first(make_jobs(experiments, out, traces=traces))
    done = [results.get(job.key) for job in costs if is_done(job, results)]
    _tell_outdated(list(costs), results)
    follow(RunProgress(costs, done), engine(list(costs)), table)
    return in_order([results.get(job.key) for job in costs]), len(done)


def _dry_run(experiments: Sequence[Experiment], arguments: argparse.Namespace) -> None:
    """Writes nothing, not even the folder."""
    from realistic_tta.benchmark.estimate import seconds
    from realistic_tta.benchmark.results import Results

    from .progress import duration

    records = Results(arguments.out).read(status="done") if arguments.out.exists() else []
    done = {record.experiment for record in records}
    left = [each for each in experiments if each.id not in done]
    print(f"{len(experiments)} experiments, {len(experiments) - len(left)} of them done:")
    estimates = seconds(left)
    for each, estimate in zip(left, estimates, strict=True):
        print(f"  {each.id}  about {duration(estimate):>7}  {each.describe()}")
    whole = max([sum(estimates) / arguments.workers, *estimates])
    print(f"about {duration(whole)} with {arguments.workers} workers")


def _tell_outdated(jobs: Sequence[Job], results: Results) -> None:
    known = {record.experiment for record in results.read(status="done")}
    again = [j for j in jobs if j.experiment.id in known and not results.done(j.key)]
    if again:
        print(
            f"{len(again)} experiments were done with other weights or images and are run again; "
            "the old records are kept"
        )
