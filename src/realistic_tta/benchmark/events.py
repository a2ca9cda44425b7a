"""What an engine tells while it runs experiments, and how one run is told and brought to its end.

An engine is a function from jobs to events: whoever shows them need not know where the work is
done. engines.py works on this machine's cores, ray_engine.py on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from realistic_tta.benchmark.results import Record
from realistic_tta.errors import ResultsError

from .metrics import Tally
from .runner import Job, failed

TELL_EVERY = 0.3  # seconds between two reports of one experiment
RUNS = 3  # of an experiment whose process dies
Evaluate = Callable[..., Record]


@dataclass(frozen=True)
class Started:
    """A process has taken the job."""

    job: Job


@dataclass(frozen=True)
class Progress:
    """Batches done so far, and the error in percent over these."""

    job: Job
    batches: int
    total: int
    error: float


@dataclass(frozen=True)
class Finished:
    """The record, whose status says whether it is done or failed."""

    job: Job
    record: Record


@dataclass(frozen=True)
class Died:
    """The process ended in the middle; the job is run again from its last saved state."""

    job: Job
    reason: str


Event = Started | Progress | Finished | Died


def run_telling(
    job: Job,
    folder: Path,
    save_every: float,
    evaluate: Evaluate,
    tell: Callable[[Event], None],
    *,
    tell_every: float = TELL_EVERY,
) -> Record:
    """The record of the run, be it a failed one; on the way its progress is told."""
    told = 0.0

    def report(tally: Tally) -> None:
        nonlocal told
        now = monotonic()
        if now - told >= tell_every:
            told = now
            tell(Progress(job, tally.batches, tally.total, tally.error()))

    try:
        return evaluate(job, folder, report, save_every)
    except ResultsError:  # nothing can be kept: no experiment would end otherwise
        raise
    except Exception as error:  # noqa: BLE001 - whatever a method raises, the others go on
        return failed(job, f"{type(error).__name__}: {error}")


def given_up(event: Died) -> Record:
    """The record of a job that has died too often."""
    message = f"the process ended {RUNS} times in the middle, last with {event.reason}"
    return failed(event.job, message)
