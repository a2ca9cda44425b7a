"""Runs many experiments on a Ray cluster, with the events and records of engines.py.

Each experiment is one Ray task, a generator that yields its events. Records are written by the
driver, so the nodes need no access to the results folder.
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

from realistic_tta.data.registry import data_folder
from realistic_tta.errors import OptionError, ResultsError

from . import checkpoints
from .environment import versions
from .events import ATTEMPTS, Died, Evaluate, Event, Finished, Started, given_up, run_reporting
from .results import DONE, Results
from .runner import SAVE_EVERY, Job, evaluate, failed, is_done

REPORT_EVERY = 2.0  # seconds; hundreds of tasks may report to one driver
TIMEOUT = 5.0  # seconds for the cluster to answer


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

    Finished jobs are skipped. Closing the iterator cancels the tasks.
    gpus: per experiment, a fraction to share one; None for one GPU if the cluster has any.
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
                    checkpoints.delete(checkpoints.checkpoint_file(event.job.key, folder))
            yield event


def _task(gpus: float | None) -> Any:
    """`work` as a Ray task. Ray must not retry it: it would not report that the task died."""
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
    """The events of all tasks; a task that dies is submitted again."""
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
                if deaths[job] == ATTEMPTS:
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
    try:
        event: Event = ray.get(next(task))
    except RayTaskError as error:  # raised on the node outside the method, such as an ImportError
        if isinstance(error.cause, ResultsError):
            raise error.cause from None
        return Finished(job, failed(job, f"the node could not run it: {error.cause}"))
    except RayError as error:
        return Died(job, f"{type(error).__name__}: {str(error).split('. ')[0]}")
    return event


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connects for this run; an existing connection is used and kept."""
    if ray.is_initialized():
        yield
        return
    check_address(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise OptionError(_no_cluster(address, error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Raises unless the address accepts connections; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise OptionError(
            f'address is "{address}"; expected HOST:PORT of the head node, such as 10.0.0.1:6379, '
            "or auto for the cluster that this computer belongs to"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise OptionError(_no_cluster(address, error)) from error


def _no_cluster(address: str, error: Exception) -> str:
    return (
        f'no Ray cluster answers at "{address}" ({str(error).splitlines()[0]}). Start one with '
        "`ray start --head`, join one with `ray start --address HOST:PORT`, or use --engine local"
    )


def work(
    job: Job, package: str, folder: Path, save_every: float, evaluate: Evaluate
) -> Iterator[Event]:
    """The task of one experiment, on a node. package: the driver's version of this package."""
    yield Started(job)
    here = versions()["package"]
    if here != package:
        message = (
            f"realistic-tta is {here} on node {socket.gethostname()} and {package} on the driver; "
            "install the same version on every node"
        )
        yield Finished(job, failed(job, message))
        return
    queue: SimpleQueue[Event | BaseException] = SimpleQueue()
    Thread(target=_evaluate, args=(job, folder, save_every, evaluate, queue), daemon=True).start()
    event: Event | BaseException = Started(job)
    while not isinstance(event, Finished):
        event = queue.get()
        if isinstance(event, BaseException):
            raise event
        yield event


def _evaluate(
    job: Job,
    folder: Path,
    save_every: float,
    evaluate: Evaluate,
    queue: SimpleQueue[Event | BaseException],
) -> None:
    """Runs in a thread beside `work`, so that `work` can yield events during the evaluation."""
    torch.set_num_threads(1)  # the other cores have their own tasks
    try:
        record = run_reporting(
            job, folder, save_every, evaluate, queue.put, report_every=REPORT_EVERY
        )
        if record.message is not None:
            where = f"{record.message} (on node {socket.gethostname()})"
            record = dataclasses.replace(record, message=where)
        queue.put(Finished(job, record))
    except BaseException as error:  # noqa: BLE001 - otherwise `work` would wait forever
        queue.put(error)
