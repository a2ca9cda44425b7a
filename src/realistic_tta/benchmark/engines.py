"""Runs many experiments on the local cores and yields events (events.py).

Every worker has its own pipe: a worker killed while holding the lock of a shared queue would block
the others.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from realistic_tta.data.generate import start_worker
from realistic_tta.errors import ResultsError

from . import checkpoints
from .events import ATTEMPTS, Died, Evaluate, Event, Finished, Started, given_up, run_reporting
from .results import Results
from .runner import SAVE_EVERY, Job, evaluate, is_done


def run_local(
    jobs: Sequence[Job],
    folder: Path,
    workers: int,
    *,
    save_every: float = SAVE_EVERY,
    evaluate: Evaluate = evaluate,
) -> Iterator[Event]:
    """Runs the jobs in this order on `workers` processes and writes the records.

    Finished jobs are skipped. Closing the iterator ends the workers.
    """
    results = Results(folder)
    waiting = deque(job for job in jobs if not is_done(job, results))
    deaths: Counter[str] = Counter()
    start = (folder, save_every, evaluate)
    team = [_Worker(*start) for _ in range(min(workers, len(waiting)))]
    try:
        while waiting or any(worker.job for worker in team):
            for place, worker in enumerate(team):
                if worker.job is None and waiting:
                    team[place] = worker if worker.process.is_alive() else _Worker(*start)
                    yield team[place].assign(waiting.popleft())
            for worker in _ready(team):
                event = worker.receive()
                if isinstance(event, Died):
                    deaths[event.job.key] += 1
                    if deaths[event.job.key] == ATTEMPTS:
                        event = Finished(event.job, given_up(event))
                        results.write(event.record)
                    else:
                        waiting.appendleft(event.job)
                yield event
    finally:
        for worker in team:
            worker.end()


class _Worker:
    """A process, its pipe, and its current job."""

    def __init__(self, folder: Path, save_every: float, evaluate: Evaluate) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.job: Job | None = None
        arguments = (theirs, folder, save_every, evaluate)
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process closes the pipe

    def assign(self, job: Job) -> Started:
        self.job = job
        with contextlib.suppress(OSError):  # already dead; `receive` reports it
            self.pipe.send(job)
        return Started(job)

    def receive(self) -> Event:
        """The next event of the worker; Died if the process has ended."""
        assert self.job is not None
        job = self.job
        try:
            event: Event | ResultsError = self.pipe.recv()
        except (EOFError, OSError):
            self.job = None
            self.process.join()
            return Died(job, _reason(self.process.exitcode))
        if isinstance(event, ResultsError):
            raise event
        if isinstance(event, Finished):
            self.job = None
        return event

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _ready(team: Sequence[_Worker]) -> list[_Worker]:
    busy = {worker.pipe: worker for worker in team if worker.job}
    return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]


def _reason(exit_code: int | None) -> str:
    """Why a process ended.

    >>> _reason(3), _reason(-9)
    ('exit code 3', 'exit code -9 (killed, perhaps out of memory)')
    """
    killed = exit_code == -9
    return f"exit code {exit_code}" + (" (killed, perhaps out of memory)" if killed else "")


def _work(pipe: Any, folder: Path, save_every: float, evaluate: Evaluate) -> None:
    """The main loop of a worker process."""
    start_worker()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends its workers
    torch.set_num_threads(1)  # the other cores have their own workers
    results = Results(folder)
    while True:
        job: Job = pipe.recv()
        try:
            if not is_done(job, results):  # done if it died between writing and reporting
                results.write(run_reporting(job, folder, save_every, evaluate, pipe.send))
        except ResultsError as error:
            pipe.send(error)
        else:
            checkpoints.delete(checkpoints.checkpoint_file(job.key, folder))
            pipe.send(Finished(job, results.get(job.key)))
