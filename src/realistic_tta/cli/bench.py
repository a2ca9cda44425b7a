"""`rtta bench`: methods, batch sizes, scenarios and datasets, on all cores or a Ray cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import add_axes
from .run import add_run_options, run

if TYPE_CHECKING:
    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.results import Record


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `bench`."""
    bench = commands.add_parser(
        "bench",
        help="measure methods at several batch sizes and in several scenarios",
        description="Runs every combination and stores one record each (see `rtta results`). "
        "Finished experiments are not run again; interrupted ones resume from a checkpoint.",
    )
    axes = bench.add_argument_group("what to run; lists are separated by commas")
    add_axes(
        axes,
        datasets="cifar10-c (default), cifar100-c, imagenet-c",
        models="see `rtta models`; default: embedded",
        scenarios="default: continual",
        methods="default: all; append +guard, +flip or +smooth_labels to switch these on",
        batch_sizes="default: 200,64,16,4,2,1",
        seeds="default: 1",
        orders="shuffled (default, as the reference framework) or file",
        deltas="Dirichlet parameters of correlated scenarios; default: sorted by label",
        severities="1 to 5, of scenarios with one severity; default: 5",
        momentums="of tema and rectified_tema; default: auto, by Eq. 5",
    )
    axes.add_argument("--images", type=int, metavar="N", help="per corruption; default: all")
    axes.add_argument("--file", type=Path, help="a grid in TOML; the options above override it")
    add_run_options(bench)
    bench.set_defaults(run=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    return run(_experiments(arguments), arguments, _print_table)


def _print_table(records: Sequence[Record]) -> None:
    from .results import print_pivots

    print_pivots(records, "method", "batch_size", "error")


def _experiments(arguments: argparse.Namespace) -> list[Experiment]:
    from realistic_tta.benchmark.experiment import AXES, Grid, read_grids

    given = {name: getattr(arguments, name) for name in AXES}
    given = {name: values for name, values in given.items() if values is not None}
    grids = read_grids(arguments.file) if arguments.file else [Grid({}, {})]
    every_axes = [AXES | each.axes | given for each in grids]
    used = _available([name for axes in every_axes for name in _listed(axes["datasets"])])
    found: dict[Experiment, None] = {}
    for axes, each in zip(every_axes, grids, strict=True):
        axes["datasets"] = [used[name] for name in _listed(axes["datasets"])]
        for variant in _with_momentums(arguments.momentums or [None], each.hyperparameters):
            found |= dict.fromkeys(Grid(axes, variant, each.where).experiments())
    return list(found)


def _listed(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]


def _available(names: Sequence[str]) -> dict[str, str]:
    """Each dataset, or its substitute, which is printed."""
    from realistic_tta.benchmark.datasets import available

    found = {name: available(name) for name in dict.fromkeys(names)}
    for name, used in found.items():
        if used != name:
            print(
                f"{name} is not on disk (`rtta data get {name}` fetches it): running on {used}, "
                "2,000 images of the package, corrupted locally. "
                "These results are not comparable with published ones."
            )
    return found


def _with_momentums(
    momentums: Sequence[float | None], hyperparameters: dict[str, Any]
) -> list[dict[str, Any]]:
    """The hyperparameters of the methods, once per momentum."""
    fixed: list[dict[str, float]] = [{} if m is None else {"momentum": m} for m in momentums]
    return [
        hyperparameters
        | {name: hyperparameters.get(name, {}) | each for name in ("tema", "rectified_tema")}
        for each in fixed
    ]
