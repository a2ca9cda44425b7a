"""`rtta ablate`: a method without each of its pieces, beside the whole."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .bench_run import add_run_options, listed, run
from .terminal import columns_as_text

if TYPE_CHECKING:
    from realistic_tta.benchmark.ablation import Cell, Error
    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.results import Record

DEFAULTS = {"setting": "continual,correlated", "batch_size": "64,16,4,1", "seed": "1,2,3"}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `ablate`."""
    ablate = commands.add_parser(
        "ablate",
        help="a method without each of its pieces, beside the whole",
        description="Runs the method whole and without each piece, and prints the errors with "
        "their spread over seeds. Records are kept as `rtta bench` does: what is done is not run "
        "again.",
    )
    ablate.add_argument("method", choices=["realistic"])
    axes = ablate.add_argument_group("what to run; each a value or several, 1,2,3")
    axes.add_argument("--data", default="cifar10-c", metavar="LIST", help="default: cifar10-c")
    axes.add_argument("--network", metavar="LIST", help="see `rtta networks`; default: embedded")
    axes.add_argument("--setting", metavar="LIST", help="default: continual,correlated")
    axes.add_argument("--batch-sizes", metavar="LIST", dest="batch_size", help="default: 64,16,4,1")
    axes.add_argument("--seeds", metavar="LIST", dest="seed", help="default: 1,2,3")
    axes.add_argument("--images", metavar="N", help="of every corruption; default: all")
    add_run_options(ablate)
    ablate.set_defaults(run=_ablate, **DEFAULTS)


def _ablate(arguments: argparse.Namespace) -> None:
    from realistic_tta.benchmark.ablation import ablation, errors_of

    cells = ablation(arguments.method, _axes(arguments))

    def show(records: Sequence[Record]) -> None:
        print("\n".join(table(cells, errors_of(cells, records))))

    run([each for several in cells.values() for each in several], arguments, show)


def _axes(arguments: argparse.Namespace) -> dict[str, Any]:
    from realistic_tta.benchmark.data import available

    names = ("network", "setting", "batch_size", "seed", "images")
    given = {name: getattr(arguments, name) for name in names}
    axes = {name: listed(name, text) for name, text in given.items() if text is not None}
    return axes | {"data": [available(name) for name in listed("data", arguments.data)]}


def table(cells: dict[Cell, list[Experiment]], errors: dict[Cell, Error]) -> list[str]:
    """A block a setting: a row a piece that is left out, a column a batch size."""
    lines = []
    rows, settings, sizes = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    for setting in settings:
        cell_rows = [
            (str(row), *(_figure(errors.get((row, setting, size))) for size in sizes))
            for row in rows
        ]
        lines += ["", f"error in percent: {setting}"]
        lines += columns_as_text([("", *map(str, sizes)), *cell_rows])
    seeds = {each.seed for several in cells.values() for each in several}
    return [*lines, f"mean and standard deviation over {len(seeds)} seeds"]


def _figure(error: Error | None) -> str:
    if error is None:
        return "-"
    return f"{error.mean:.2f}" if error.spread is None else f"{error.mean:.2f} ±{error.spread:.2f}"
