"""`rtta report`: the results of `rtta bench` as one page that opens from disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from realistic_tta.benchmark.results import Results

from .bench_run import OUT
from .results import add_filters, in_order, wanted


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `report`."""
    report = commands.add_parser(
        "report",
        help="write the results as one page to look at",
        description="Writes one HTML file that needs no network: headline, tables beside the "
        "paper's, plots, costs, and the data as CSV.",
    )
    report.add_argument("--dir", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    report.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html"
    )
    add_filters(report)
    report.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> None:
    from realistic_tta import __version__
    from realistic_tta.report.page import write_page

    records = in_order(Results(arguments.dir, create=False).read(**wanted(arguments)))
    write_page(records, arguments.dir, arguments.out, __version__)
    size = arguments.out.stat().st_size / 1e6
    print(f"{len(records)} results in {arguments.out} ({size:.1f} MB); open it in a browser")
