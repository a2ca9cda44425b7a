"""Runs many experiments on this machine's cores and tells what happens as it happens (events.py).

Every process has a pipe of its own. (A queue shared by all has a lock, and a worker that is killed
while it holds it would stop the others.)
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

from realistic_tta.benchmark.results import Results
from realistic_tta.data.generate import start_worker
from realistic_tta.errors import ResultsError

from .checkpoints import forget, state_file
from .events import RUNS, Died, Evaluate, Event, Finished, Started, given_up, run_telling
from .runner import SAVE_EVERY, Job, evaluate, is_done


def run_local(
    jobs: Sequence[Job],
    folder: Path,
    workers: int,
    *,
    save_every: float = SAVE_EVERY,
    evaluate: Evaluate = evaluate,
) -> Iterator[Event]:
    """Runs the jobs in this order, as many at once as there are workers, and writes the records.

    What is done already is not run again. Closing the iterator ends the workers.
    """
    results = Results(folder)
    waiting = deque(job for job in jobs if not is_done(job, results))
    runs: Counter[str] = Counter()
    start = (folder, save_every, evaluate)
    team = [_Worker(*start) for _ in range(min(workers, len(waiting)))]
    try:
        while waiting or any(worker.job for worker in team):
            for place, worker in enumerate(team):
                if worker.job is None and waiting:
                    team[place] = worker if worker.process.is_alive() else _Worker(*start)
                    yield team[place].give(waiting.popleft())
            for worker in _with_news(team):
                event = worker.hear()
                if isinstance(event, Died):
                    runs[event.job.key] += 1
                    if runs[event.job.key] == RUNS:
                        event = Finished(event.job, given_up(event))
                        results.write(event.record)
                    else:
                        waiting.appendleft(event.job)
                yield event
    finally:
        for worker in team:
            worker.end()


class _Worker:
    """A process, its pipe, and the job it is at."""

    def __init__(self, folder: Path, save_every: float, evaluate: Evaluate) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.job: Job | None = None
        arguments = (theirs, folder, save_every, evaluate)
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()  # else its end would not be seen

    def give(self, job: Job) -> Started:
        self.job = job
        with contextlib.suppress(OSError):  # it has died already, which `hear` will tell
            self.pipe.send(job)
        return Started(job)

    def hear(self) -> Event:
        """What the worker says; that it is gone, if it is."""
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


def _with_news(team: Sequence[_Worker]) -> list[_Worker]:
    busy = {worker.pipe: worker for worker in team if worker.job}
    return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]


def _reason(exit_code: int | None) -> str:
    """For people.

    >>> _reason(3), _reason(-9)
    ('exit code 3', 'exit code -9 (killed, perhaps for want of memory)')
    """
    return f"exit code {exit_code}" + (
        " (killed, perhaps for want of memory)" if exit_code == -signal.SIGKILL else ""
    )


def _work(pipe: Any, folder: Path, save_every: float, evaluate: Evaluate) -> None:
    """What a worker does all its life."""
    start_worker()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is asked, and ends its workers
    torch.set_num_threads(1)  # the other cores have workers of their own
    results = Results(folder)
    while True:
        job: Job = pipe.recv()
        try:
            if not is_done(job, results):  # else it died after writing, before telling
                results.write(run_telling(job, folder, save_every, evaluate, pipe.send))
        except ResultsError as error:
            pipe.send(error)
        else:
            forget(state_file(job.key, folder))
            pipe.send(Finished(job, results.get(job.key)))
