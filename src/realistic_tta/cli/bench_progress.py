"""Where a benchmark stands, from the engine's events; bench_display.py shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from realistic_tta.benchmark.events import Died, Event, Finished, Progress, Started
from realistic_tta.benchmark.results import Record
from realistic_tta.benchmark.runner import Job


class Board:
    """costs: the jobs, with what each takes, in any unit. done: what was done before."""

    def __init__(self, costs: Mapping[Job, int], done: Sequence[Record]) -> None:
        self.jobs = tuple(costs)
        self.costs = {job.key: cost for job, cost in costs.items()}
        self.done_before = {record.key for record in done}
        self.shares: dict[str, float] = {}  # of what runs
        self.errors = {record.key: record.error for record in done if record.error is not None}
        self.records: dict[str, Record] = {}

    def update(self, event: Event) -> None:
        """Takes one event in."""
        key = event.job.key
        match event:
            case Started() | Died():
                self.shares[key] = self.shares.get(key, 0.0)
            case Progress():
                self.shares[key], self.errors[key] = event.batches / event.total, event.error
            case Finished():
                self.shares.pop(key, None)
                self.records[key] = event.record
                if event.record.error is not None:
                    self.errors[key] = event.record.error

    @property
    def failed(self) -> int:
        """Experiments that ended with an error in this call."""
        return sum(record.status == "failed" for record in self.records.values())

    @property
    def ended(self) -> int:
        """Experiments that need not be run any more."""
        return len(self.done_before) + len(self.records)

    def share(self) -> float:
        """Of this call's work that is done, from 0 to 1."""
        keys = [job.key for job in self.jobs if job.key not in self.done_before]
        whole = sum(self.costs[key] for key in keys)
        shares = dict.fromkeys(self.records, 1.0) | self.shares
        done = sum(share * self.costs[key] for key, share in shares.items())
        return done / whole if whole else 1.0

    def summary(self) -> str:
        """Done, running, left.

        >>> Board({}, []).summary()
        '0 of 0 done, 0 running, 0 left'
        """
        running = len(self.shares)
        left = len(self.jobs) - self.ended - running
        told = f"{self.ended} of {len(self.jobs)} done, {running} running, {left} left"
        return told + (f", {self.failed} failed" if self.failed else "")

    def error(self, jobs: Sequence[Job]) -> float | None:
        """Mean of the errors known so far; None if there is none."""
        known = [self.errors[job.key] for job in jobs if job.key in self.errors]
        return fmean(known) if known else None
