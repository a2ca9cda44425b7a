"""The progress display of all commands: live on a terminal, one line per event elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from realistic_tta.benchmark.events import Event, Finished
    from realistic_tta.benchmark.results import Record
    from realistic_tta.benchmark.runner import Job


def duration(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> duration(42.4), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Display:
    """A context that shows a body above a bar with the time left; lines where no terminal is."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._start, self._first = time.monotonic(), -1.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, done: float, body: RenderableType = "", line: str = "") -> None:
        """done: from 0 to 1. line: printed if the output is not a terminal."""
        if self._first < 0:
            self._first = done
        if self.console.is_terminal:
            bar = Table.grid(padding=(0, 1))
            bar.add_row(
                ProgressBar(100, 100 * done, width=40), f"{100 * done:.0f} %{self.left(done)}"
            )
            self._live.update(Group(body, bar), refresh=True)
        elif line:
            self.console.print(line, markup=False, soft_wrap=True)

    def left(self, done: float) -> str:
        """The estimated time left; empty at the start."""
        gone, passed = time.monotonic() - self._start, done - self._first
        return f", about {duration(gone * (1 - done) / passed)} left" if passed > 0.01 else ""


class RunProgress:
    """The state of a benchmark. costs: of the jobs, in any unit. done: records from before."""

    def __init__(self, costs: Mapping[Job, int], done: Sequence[Record]) -> None:
        self.jobs = tuple(costs)
        self.costs = {job.key: cost for job, cost in costs.items()}
        self.done_before = {record.key for record in done}
        self.running: dict[str, float] = {}  # done so far, from 0 to 1
        self.errors = {record.key: record.error for record in done if record.error is not None}
        self.records: dict[str, Record] = {}

    def update(self, event: Event) -> None:
        """Takes in one event."""
        from realistic_tta.benchmark.events import Finished, Progress

        key = event.job.key
        if isinstance(event, Finished):
            self.running.pop(key, None)
            self.records[key] = event.record
            if event.record.error is not None:
                self.errors[key] = event.record.error
        elif isinstance(event, Progress):
            self.running[key], self.errors[key] = event.batches / event.total, event.error
        else:
            self.running.setdefault(key, 0.0)

    @property
    def ended(self) -> int:
        """Number of experiments that are finished or failed."""
        return len(self.done_before) + len(self.records)

    def done(self) -> float:
        """The part of this call's work that is done, from 0 to 1."""
        whole = sum(cost for key, cost in self.costs.items() if key not in self.done_before)
        parts = dict.fromkeys(self.records, 1.0) | self.running
        return sum(part * self.costs[key] for key, part in parts.items()) / whole if whole else 1.0

    def summary(self) -> str:
        """Numbers of experiments.

        >>> RunProgress({}, []).summary()
        '0 of 0 done, 0 running, 0 left'
        """
        running, failed = (
            len(self.running),
            sum(r.status == "failed" for r in self.records.values()),
        )
        left = len(self.jobs) - self.ended - running
        text = f"{self.ended} of {len(self.jobs)} done, {running} running, {left} left"
        return text + (f", {failed} failed" if failed else "")


def follow(
    progress: RunProgress,
    events: Iterable[Event],
    table: Callable[[RunProgress], Table],
    console: Console | None = None,
) -> None:
    """Shows a table that fills while experiments run, until the last event."""
    from realistic_tta.benchmark.events import Died, Finished

    with Display(console) as display:
        before = f"{progress.summary()}: these are not run again" if progress.done_before else ""
        display.update(progress.done(), table(progress), before)
        for event in events:
            progress.update(event)
            line, name = "", event.job.experiment.describe()
            if isinstance(event, Finished):
                line = f"[{progress.ended}/{len(progress.jobs)}] {name}: {_outcome(event)}"
            elif isinstance(event, Died):
                line = f"process ended ({event.reason}), resuming: {name}"
            display.update(progress.done(), Group(table(progress), Text(progress.summary())), line)


def _outcome(event: Finished) -> str:
    record = event.record
    if record.error is None or record.seconds is None:
        return f"failed: {record.message}"
    cost = "" if record.cost is None else f", {record.cost:.1f} x source"
    return f"{record.error:.1f} % error, {duration(record.seconds)}{cost}"


def error_table(progress: RunProgress) -> Table:
    """The error so far by method and batch size, with one row per model, dataset and scenario."""
    from realistic_tta.benchmark.results import row_name

    sizes = sorted({job.experiment.batch_size for job in progress.jobs}, reverse=True)
    rows: dict[tuple[str, ...], dict[int, list[str]]] = {}
    for job in progress.jobs:
        each = job.experiment
        row = each.model, each.dataset, each.scenario, row_name(each.method, each.hyperparameters)
        rows.setdefault(row, {}).setdefault(each.batch_size, []).append(job.key)
    shown = Table(box=box.SIMPLE_HEAD, title="error so far (%)", title_style="")
    for name in ("model", "dataset", "scenario", "method"):
        shown.add_column(name)
    for size in sizes:
        shown.add_column(str(size), justify="right")
    for names, cells in sorted(rows.items()):
        shown.add_row(*names, *[_cell(progress, cells.get(size, [])) for size in sizes])
    return shown


def _cell(progress: RunProgress, keys: Sequence[str]) -> Text:
    known = [progress.errors[key] for key in keys if key in progress.errors]
    error = f"{fmean(known):.1f}" if known else "…"
    if any(key in progress.records and progress.records[key].status == "failed" for key in keys):
        return Text("failed", style="red")
    if running := [progress.running[key] for key in keys if key in progress.running]:
        return Text(f"{error} ({100 * max(running):.0f} %)", style="dim")
    return Text(error, style="" if known else "dim")
