"""`rtta report`: writes the records of `rtta bench` as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from .options import OUT, add_filters, selected


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `report`."""
    report = commands.add_parser(
        "report",
        help="write the records as one HTML page",
        description="Writes one HTML file that works offline: tables beside the paper's, plots, "
        "costs, and the data as CSV.",
    )
    report.add_argument("--dir", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    report.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html"
    )
    add_filters(report)
    report.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> None:
    from realistic_tta import __version__
    from realistic_tta.benchmark.results import Results
    from realistic_tta.report.page import write_page

    from .results import in_order

    records = in_order(Results(arguments.dir, create=False).read(**selected(arguments)))
    write_page(records, arguments.dir, arguments.out, __version__)
    size = arguments.out.stat().st_size / 1e6
    print(f"{len(records)} records in {arguments.out} ({size:.1f} MB); open it in a browser")
