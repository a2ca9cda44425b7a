"""Events that an engine yields while it runs experiments.

An engine is a generator of events, so the display does not depend on where the work is done:
engines.py uses the local cores, ray_engine.py a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from realistic_tta.errors import ResultsError

from .metrics import Metrics
from .results import Record
from .runner import Job, failed

REPORT_EVERY = 0.3  # seconds between two Progress events of one experiment
ATTEMPTS = 3  # for an experiment whose process dies
Evaluate = Callable[..., Record]


@dataclass(frozen=True)
class Started:
    """A worker has taken the job."""

    job: Job


@dataclass(frozen=True)
class Progress:
    """Batches done so far, and the error over them in percent."""

    job: Job
    batches: int
    total: int
    error: float


@dataclass(frozen=True)
class Finished:
    """The job has a record, whose status is done or failed."""

    job: Job
    record: Record


@dataclass(frozen=True)
class Died:
    """The worker process ended unexpectedly; the job resumes from its last checkpoint."""

    job: Job
    reason: str


Event = Started | Progress | Finished | Died


def run_reporting(
    job: Job,
    folder: Path,
    save_every: float,
    evaluate: Evaluate,
    send: Callable[[Event], None],
    *,
    report_every: float = REPORT_EVERY,
) -> Record:
    """Runs one job, sends its progress, and returns its record, done or failed."""
    last = 0.0

    def report(metrics: Metrics) -> None:
        nonlocal last
        now = monotonic()
        if now - last >= report_every:
            last = now
            send(Progress(job, metrics.batches, metrics.total, metrics.error()))

    try:
        return evaluate(job, folder, report, save_every)
    except ResultsError:  # results cannot be written: stop the whole benchmark
        raise
    except Exception as error:  # noqa: BLE001 - one failing method must not stop the others
        return failed(job, f"{type(error).__name__}: {error}")


def given_up(event: Died) -> Record:
    """The record of a job whose process died ATTEMPTS times."""
    message = f"the process ended {ATTEMPTS} times unexpectedly, last with {event.reason}"
    return failed(event.job, message)
