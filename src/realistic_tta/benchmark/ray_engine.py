"""Runs many experiments on a Ray cluster: the events and records of engines.py, the work elsewhere.

One task an experiment; where and when it runs is Ray's choice. A task is a generator, and what it
yields are its events: Ray brings them here, so there is no channel of our own that a dying node
could block. Records are written here: nodes need no access to the results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from realistic_tta.benchmark.results import DONE, Results
from realistic_tta.data.registry import data_folder
from realistic_tta.errors import ResultsError, SettingError

from .checkpoints import forget, state_file
from .environment import versions
from .events import RUNS, Died, Evaluate, Event, Finished, Started, given_up, run_telling
from .runner import SAVE_EVERY, Job, evaluate, failed, is_done

TELL_EVERY = 2.0  # seconds; hundreds of tasks may tell one driver
ANSWER = 5.0  # seconds in which a cluster must answer


def run_ray(
    jobs: Sequence[Job],
    folder: Path,
    address: str = "auto",
    *,
    gpus: float | None = None,
    save_every: float = SAVE_EVERY,
    evaluate: Evaluate = evaluate,
) -> Iterator[Event]:
    """Runs the jobs on the cluster at the address and writes the records.

    What is done already is not run again. Closing the iterator cancels what runs.
    gpus: of each experiment, a share of one if several are to use it together; None: one if the
    cluster has any.
    """
    results, folder = Results(folder), folder.resolve()
    left = [job for job in jobs if not is_done(job, results)]
    if not left:
        return
    with _connected(address):
        task = _task(gpus)
        start = (versions()["package"], folder, save_every, evaluate)
        for event in _events(left, lambda job: task.remote(job, *start)):
            if isinstance(event, Finished):
                results.write(event.record)
                if event.record.status == DONE:
                    forget(state_file(event.job.key, folder))
            yield event


def _task(gpus: float | None) -> Any:
    """`work` as Ray's task. Not tried again by Ray, which would not tell us that it died."""
    if gpus is None:
        gpus = min(ray.cluster_resources().get("GPU", 0), 1)
    return ray.remote(work).options(
        num_cpus=1,
        num_gpus=gpus,
        max_retries=0,
        num_returns="streaming",
        runtime_env={"env_vars": {"RTTA_DATA": str(data_folder().resolve())}},
    )


def _events(jobs: Sequence[Job], submit: Callable[[Job], Any]) -> Iterator[Event]:
    """Of all tasks, as they come; a task that dies is submitted again."""
    running = {submit(job): job for job in jobs}
    deaths: Counter[Job] = Counter()
    try:
        while running:
            (task,), _ = ray.wait(list(running), num_returns=1)
            job = running[task]
            event = _next(task, job)
            if isinstance(event, Died):
                del running[task]
                deaths[job] += 1
                if deaths[job] == RUNS:
                    event = Finished(job, given_up(event))
                else:
                    running[submit(job)] = job
            elif isinstance(event, Finished):
                del running[task]
            yield event
    finally:
        for task in running:
            ray.cancel(task, force=True)


def _next(task: Any, job: Job) -> Event:
    """What the task says; that it is gone, if it is."""
    try:
        event: Event = ray.get(next(task))
    except RayTaskError as error:  # on the node, but outside the method: it cannot be imported, say
        if isinstance(error.cause, ResultsError):
            raise error.cause from None
        return Finished(job, failed(job, f"the node could not run it: {error.cause}"))
    except RayError as error:
        return Died(job, f"{type(error).__name__}: {str(error).split('. ')[0]}")
    return event


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    """A connection for this run; one that the program has made before is used, and kept."""
    if ray.is_initialized():
        yield
        return
    check_address(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SettingError(_no_cluster(address, error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Knocks first: Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise SettingError(
            f'address is "{address}"; expected HOST:PORT of the cluster\'s head, such as '
            "10.0.0.1:6379, or auto for the cluster that this machine is part of"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        raise SettingError(_no_cluster(address, error)) from error


def _no_cluster(address: str, error: Exception) -> str:
    return (
        f'no Ray cluster answers at "{address}" ({str(error).splitlines()[0]}). Start one with '
        "`ray start --head`, add this machine to one with `ray start --address HOST:PORT`, "
        "or run with --engine local"
    )


def work(
    job: Job, package: str, folder: Path, save_every: float, evaluate: Evaluate
) -> Iterator[Event]:
    """What a node does for one experiment.

    package: the version of this package where the benchmark was started.
    """
    yield Started(job)
    here = versions()["package"]
    if here != package:
        message = (
            f"realistic-tta is {here} on node {socket.gethostname()} and {package} where the "
            "benchmark was started; install the same version on every node"
        )
        yield Finished(job, failed(job, message))
        return
    told: SimpleQueue[Event | BaseException] = SimpleQueue()
    Thread(target=_evaluate, args=(job, folder, save_every, evaluate, told), daemon=True).start()
    event: Event | BaseException = Started(job)
    while not isinstance(event, Finished):
        event = told.get()
        if isinstance(event, BaseException):
            raise event
        yield event


def _evaluate(
    job: Job,
    folder: Path,
    save_every: float,
    evaluate: Evaluate,
    told: SimpleQueue[Event | BaseException],
) -> None:
    """In a thread beside `work`, which can so yield what is told from inside the evaluation."""
    torch.set_num_threads(1)  # the other cores have tasks of their own
    try:
        record = run_telling(job, folder, save_every, evaluate, told.put, tell_every=TELL_EVERY)
        if record.message is not None:
            where = f"{record.message} (on node {socket.gethostname()})"
            record = dataclasses.replace(record, message=where)
        told.put(Finished(job, record))
    except BaseException as error:  # noqa: BLE001 - else `work` would wait for ever
        told.put(error)
