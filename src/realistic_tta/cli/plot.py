"""`rtta plot`: draws figures from the records of `rtta bench`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from .options import OUT, add_filters, listed, selected


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `plot`."""
    plot = commands.add_parser(
        "plot",
        help="draw figures from the records of `rtta bench`",
        description="Draws from stored records and runs nothing; by default, all that the records "
        "allow. docs/reference/figures.md shows every figure.",
    )
    plot.add_argument("figures", nargs="*", metavar="FIGURE", help="such as error_by_batch_size")
    plot.add_argument("--dir", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    plot.add_argument("--out", type=Path, metavar="DIR", help="default: DIR/figures")
    plot.add_argument("--formats", type=listed(str), default=["png"], help="png (default), svg")
    add_filters(plot)
    plot.set_defaults(run=_plot)


def _plot(arguments: argparse.Namespace) -> None:
    from realistic_tta.benchmark.results import Results
    from realistic_tta.benchmark.traces import read_trace
    from realistic_tta.errors import ResultsError, unknown
    from realistic_tta.report.catalog import FIGURES, draw
    from realistic_tta.report.style import FORMATS, write_figure

    named = [("figure", each, FIGURES) for each in arguments.figures]
    for kind, name, known in [*named, *(("format", each, FORMATS) for each in arguments.formats)]:
        if name not in known:
            raise ResultsError(unknown(kind, name, known))
    records = []
    if arguments.figures != ["class_diversity"]:
        records = Results(arguments.dir, create=False).read(**selected(arguments))
    traces = partial(read_trace, folder=arguments.dir)
    out = arguments.out or arguments.dir / "figures"
    for name in arguments.figures or FIGURES:
        try:
            drawn = list(draw(name, records, traces))
        except ResultsError as problem:
            where = "" if arguments.dir == OUT else f" (with --out {arguments.dir})"
            if arguments.figures:
                raise ResultsError(f"{problem}{where}") from problem
            print(f"not drawn: {problem}{where}")
            continue
        for stem, figure in drawn:
            for ending in arguments.formats:
                write_figure(figure, out / f"{stem}.{ending}")
                print(out / f"{stem}.{ending}")
