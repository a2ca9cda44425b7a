"""`rtta bench`: methods x batch sizes x settings x data sets, on every core or a Ray cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bench_run import add_run_options, listed, run

if TYPE_CHECKING:
    from realistic_tta.benchmark.experiment import Experiment
    from realistic_tta.benchmark.results import Record


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `bench`."""
    bench = commands.add_parser(
        "bench",
        help="measure methods at batch sizes in settings; interrupted, it goes on",
        description="Runs every combination and keeps a record of each (`rtta results`). What is "
        "done is never run again; what was interrupted goes on in the middle.",
    )
    axes = bench.add_argument_group("what to run; each a name or several, 1,2,3")
    axes.add_argument("--data", metavar="LIST", help="cifar10-c (default), cifar100-c, imagenet-c")
    axes.add_argument("--network", metavar="LIST", help="see `rtta networks`; default: embedded")
    axes.add_argument(
        "--methods",
        metavar="LIST",
        dest="method",
        help="default: all; +guard, +robust behind a name switch those on",
    )
    axes.add_argument(
        "--batch-sizes", metavar="LIST", dest="batch_size", help="default: 200,64,16,4,2,1"
    )
    axes.add_argument("--setting", metavar="LIST", help="default: continual")
    axes.add_argument("--seeds", metavar="LIST", dest="seed", help="default: 1")
    axes.add_argument("--images", metavar="N", help="of every corruption; default: all")
    axes.add_argument("--order", help="shuffled (default, the reference framework) or file")
    axes.add_argument("--delta", help="of correlated settings: Dirichlet; default: sorted by label")
    axes.add_argument(
        "--momentum", metavar="LIST", help="of tema and rectified_tema; default: auto, by Eq. 5"
    )
    axes.add_argument("--file", type=Path, help="a grid in TOML or YAML; options above win over it")
    add_run_options(bench)
    bench.set_defaults(run=_bench)


def _bench(arguments: argparse.Namespace) -> None:
    run(_experiments(arguments), arguments, _print_table)


def _print_table(records: Sequence[Record]) -> None:
    from .results import print_pivots

    print_pivots(records, "method", "batch_size", "error")


def _experiments(arguments: argparse.Namespace) -> list[Experiment]:
    """What the file says, and over it what the options say."""
    from realistic_tta.benchmark.data import available
    from realistic_tta.benchmark.experiment import AXES, grid, read_grid

    axes, settings = read_grid(arguments.file) if arguments.file else ({}, {})
    given = {name: getattr(arguments, name) for name in AXES}
    axes |= {name: listed(name, text) for name, text in given.items() if text is not None}
    named = axes.get("data", AXES["data"])
    named = named if isinstance(named, list) else [named]
    axes["data"] = [available(name) for name in named]
    for name, there in zip(named, axes["data"], strict=True):
        if there != name:
            print(
                f"{name} is not on disk (`rtta data get {name}` fetches it): running on {there}, "
                "the package's own 2,000 images, corrupted here. "
                "Such figures cannot be compared with published ones."
            )
    chosen = _by_momentum(arguments.momentum, settings)
    return list(dict.fromkeys(each for some in chosen for each in grid(axes, some)))


def _by_momentum(text: str | None, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The methods' settings, once for each momentum asked for."""
    if text is None:
        return [settings]
    words = [word.strip() for word in text.split(",")]
    try:
        fixed = [{} if word == "auto" else {"momentum": float(word)} for word in words]
    except ValueError:
        raise ValueError(f'momentum is "{text}"; expected such as auto,1,0.1,0.01') from None
    averaging = ("tema", "rectified_tema")
    return [
        settings | {method: settings.get(method, {}) | each for method in averaging}
        for each in fixed
    ]
