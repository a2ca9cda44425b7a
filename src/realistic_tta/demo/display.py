"""The demo on the terminal: a table that fills while the work goes on, and a bar below it.

Where the output is a file, a line a result instead.
"""

from __future__ import annotations

import time
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from realistic_tta.benchmark.events import Event, Finished

from .experiment import Setup
from .words import BEST, EXPLAINED, Errors, breaks

BROKEN = "✗"


class Display:
    """Used as a context; called with every event, the share done and the errors known so far."""

    def __init__(self, console: Console, setup: Setup) -> None:
        self.console, self.setup = console, setup
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.start = time.monotonic()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def __call__(self, event: Event, share: float, errors: Errors) -> None:
        """Shows how far the work is."""
        if self.console.is_terminal:
            self.live.update(Group(results(errors, self.setup), self._bar(share)), refresh=True)
        elif isinstance(event, Finished) and event.record.error is not None:
            record = event.record
            self.console.print(
                f"{100 * share:3.0f} %  {record.method}, {record.batch_size} at once: "
                f"{record.error:.1f} % wrong"
            )

    def _bar(self, share: float) -> Table:
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(100, 100 * share, width=40), self._time(share))
        return line

    def _time(self, share: float) -> str:
        gone = time.monotonic() - self.start
        if share < 0.02:
            return f"{100 * share:.0f} %"
        return f"{100 * share:.0f} %, {gone * (1 - share) / share:.0f} seconds to go"


def results(errors: Errors, setup: Setup) -> Table:
    """Error by method and batch size; what is worse than the source is marked."""
    shown = Table(box=box.SIMPLE_HEAD, title="percent of photographs named wrong", title_style="")
    shown.add_column("method")
    shown.add_column("statistics from", style="dim")
    for size in setup.batch_sizes:
        shown.add_column(f"{size} at once" if size > 1 else "one by one", justify="right")
    for method in setup.methods:
        figures = [
            _figure(errors.get((method, size)), broken=breaks(errors, method, size))
            for size in setup.batch_sizes
        ]
        style = "bold" if method == BEST else ""
        shown.add_row(method, EXPLAINED.get(method, ""), *figures, style=style)
    if any(breaks(errors, *cell) for cell in errors):
        shown.caption = f"{BROKEN} worse than not adapting at all"
        shown.caption_justify = "right"
    return shown


def _figure(error: float | None, *, broken: bool) -> Text:
    if error is None:
        return Text("…  ", style="dim")
    return Text(f"{error:.1f} {BROKEN if broken else ' '}", style="red" if broken else "")
