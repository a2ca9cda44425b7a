"""A benchmark on the terminal: a table that fills while it runs; elsewhere a line a result."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from realistic_tta.benchmark.events import Died, Event, Finished
from realistic_tta.benchmark.results import row_name
from realistic_tta.benchmark.runner import Job

from .bench_progress import Board
from .bench_run import in_words


def display(board: Board, events: Iterable[Event]) -> None:
    """Shows the events until the last."""
    console = Console(highlight=False)
    if console.is_terminal:
        _live(board, events, console)
    else:
        _lines(board, events)


def _lines(board: Board, events: Iterable[Event]) -> None:
    if board.done_before:
        print(f"{board.summary()}: these are not run again", flush=True)
    for event in events:
        board.update(event)
        if isinstance(event, Finished):
            told = f"[{board.ended}/{len(board.jobs)}] {event.job.experiment.describe()}: "
            print(told + _outcome(event), flush=True)
        elif isinstance(event, Died):
            print(f"process ended ({event.reason}), run again: {event.job.experiment.describe()}")


def _outcome(event: Finished) -> str:
    record = event.record
    if record.error is None or record.seconds is None:
        return f"failed: {record.message}"
    cost = "" if record.cost is None else f", {record.cost:.1f} x source"
    return f"{record.error:.1f} % wrong, {in_words(record.seconds)}{cost}"


def _live(board: Board, events: Iterable[Event], console: Console) -> None:
    start = time.monotonic()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        live.update(table(board), refresh=True)
        for event in events:
            board.update(event)
            gone, share = time.monotonic() - start, board.share()
            to_go = f", about {in_words(gone * (1 - share) / share)} to go" if share > 0.01 else ""
            live.update(Group(table(board), Text(board.summary() + to_go)), refresh=True)


def table(board: Board) -> Table:
    """Error so far by method and batch size, one block of rows a data set and setting."""
    shown = Table(box=box.SIMPLE_HEAD, title="percent wrong so far", title_style="")
    sizes = sorted({job.experiment.batch_size for job in board.jobs}, reverse=True)
    rows: dict[tuple[str, str, str, str], list[Job]] = {}
    for job in board.jobs:
        each = job.experiment
        method = row_name(each.method, each.settings)
        rows.setdefault((each.network, each.data, each.setting, method), []).append(job)
    for name in ("network", "data", "setting", "method"):
        shown.add_column(name)
    for size in sizes:
        shown.add_column(str(size), justify="right")
    for row, jobs in sorted(rows.items()):
        cells = [[job for job in jobs if job.experiment.batch_size == size] for size in sizes]
        shown.add_row(*row, *[_cell(board, cell) for cell in cells])
    return shown


def _cell(board: Board, jobs: Sequence[Job]) -> Text:
    error = board.error(jobs)
    figure = "…" if error is None else f"{error:.1f}"
    records = [board.records[job.key] for job in jobs if job.key in board.records]
    if any(record.status == "failed" for record in records):
        return Text("failed", style="red")
    if any(job.key in board.shares for job in jobs):
        share = max(board.shares.get(job.key, 0.0) for job in jobs)
        return Text(f"{figure} ({100 * share:.0f} %)", style="dim")
    return Text(figure, style="dim" if error is None else "")
