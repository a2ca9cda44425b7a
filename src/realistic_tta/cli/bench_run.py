"""Runs experiments for a command and shows how they go: shared by `rtta bench` and `reproduce`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from realistic_tta.benchmark.events import Event
    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.results import Record, Results
    from realistic_tta.benchmark.runner import Job
    from realistic_tta.data.generate import Progress

    Engine = Callable[[Sequence[Job]], Iterator[Event]]

OUT = Path("rtta-bench")


def add_run_options(command: argparse.ArgumentParser) -> None:
    """Where records go, and what runs the experiments."""
    command.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    command.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    command.add_argument(
        "--save-every", type=float, default=120, metavar="SECONDS", help="the state of each run"
    )
    command.add_argument(
        "--traces", action="store_true", help="keep what the layers did, for `rtta plot`"
    )
    command.add_argument(
        "--replay", action="store_true", help="small batches share a forward where they can"
    )
    command.add_argument("--dry-run", action="store_true", help="list what would run, and how long")
    where = command.add_argument_group("where to run it")
    where.add_argument(
        "--engine", choices=["local", "ray"], default="local", help="this machine, or a Ray cluster"
    )
    where.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster; default: auto")
    where.add_argument(
        "--gpus", type=float, metavar="SHARE", help="of each experiment on Ray, such as 0.25"
    )


def run(
    experiments: Sequence[Experiment],
    arguments: argparse.Namespace,
    show: Callable[[Sequence[Record]], None],
) -> None:
    """Runs what is not done yet, and shows all records; or only lists, if that is asked for.

    An experiment that failed is an error, after all others have run.
    """
    import torch

    torch.set_num_threads(1)
    if arguments.workers < 1:
        raise ValueError(f"workers is {arguments.workers}; expected 1 or more")
    engine = _engine(arguments)
    if arguments.dry_run:
        _dry_run(experiments, arguments)
        return
    records = _run(experiments, arguments, engine)
    show(records)
    _close(records, arguments.out)


def _engine(arguments: argparse.Namespace) -> Engine:
    """What runs the jobs. Called first: a cluster that is not there is told before the work."""
    out, save_every = arguments.out, arguments.save_every
    if arguments.engine == "ray":
        from realistic_tta.benchmark.ray_engine import check_address, run_ray

        address, gpus = arguments.address or "auto", arguments.gpus
        check_address(address)
        return lambda jobs: run_ray(jobs, out, address, gpus=gpus, save_every=save_every)
    if arguments.address or arguments.gpus is not None:
        raise ValueError("--address and --gpus are of a cluster; expected --engine ray with them")
    from realistic_tta.benchmark.engines import run_local

    return lambda jobs: run_local(jobs, out, arguments.workers, save_every=save_every)


def _run(
    experiments: Sequence[Experiment], arguments: argparse.Namespace, engine: Engine
) -> list[Record]:
    from realistic_tta.benchmark.estimate import longest_first
    from realistic_tta.benchmark.results import Results
    from realistic_tta.benchmark.runner import is_done, make_jobs

    from .bench_display import display
    from .bench_progress import Board
    from .results import in_order

    results = Results(arguments.out)
    _prepare(experiments, arguments)
    jobs = make_jobs(experiments, arguments.out, traces=arguments.traces)
    costs = longest_first(_replayed(jobs, arguments.out) if arguments.replay else jobs)
    jobs = list(costs)
    done = [results.get(job.key) for job in jobs if is_done(job, results)]
    _tell_exchanged(jobs, results)
    board = Board(costs, done)
    display(board, engine(jobs))
    wanted = {job.key for job in jobs}
    return in_order([record for record in results.read() if record.key in wanted])


def _close(records: Sequence[Record], out: Path) -> None:
    """Where the records are, and an error if an experiment failed."""
    print(f"\n{len(records)} records in {out}; `rtta results --dir {out}`")
    failed = [record for record in records if record.status == "failed"]
    for record in failed:
        print(f"failed: {record.method}, batch size {record.batch_size}: {record.message}")
    if failed:
        raise ValueError(f"{len(failed)} of {len(records)} experiments failed")


NUMBERS: dict[str, Callable[[str], Any]] = {
    "batch_size": int,
    "seed": int,
    "images": int,
    "delta": float,
}


def listed(name: str, text: str) -> Any:
    """The values of an option, such as 4,2,1."""
    if name == "method" and text == "all":
        return text
    try:
        return [NUMBERS.get(name, str)(word.strip()) for word in text.split(",")]
    except ValueError:
        raise ValueError(f'{name} is "{text}"; expected numbers such as 4,2,1') from None


def _dry_run(experiments: Sequence[Experiment], arguments: argparse.Namespace) -> None:
    """Writes nothing, not even the folder."""
    from realistic_tta.benchmark.estimate import seconds
    from realistic_tta.benchmark.results import Results

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


def _replayed(jobs: Sequence[Job], out: Path) -> list[Job]:
    """The jobs, replayed where they can be; says which are not, and why."""
    from realistic_tta.benchmark.replayable import with_replay

    found, reasons = with_replay(jobs, out)
    for reason, count in reasons.items():
        print(f"{count} of {len(jobs)} experiments are run batch by batch: {reason}")
    return found


def _tell_exchanged(jobs: Sequence[Job], results: Results) -> None:
    """Says why what was done is run again."""
    there = {record.experiment for record in results.read(status="done")}
    anew = [j for j in jobs if j.experiment.id in there and not results.done(j.key)]
    if anew:
        print(
            f"{len(anew)} experiments were done with other weights or other images, and are "
            "measured anew; the old records stay"
        )
