"""`rtta demo`: adaptation repairs a real network on real photographs, before your eyes."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from realistic_tta.demo.experiment import Setup


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `demo`."""
    demo = commands.add_parser(
        "demo",
        help="see adaptation repair a network on damaged photographs: minutes, no download",
        description="Six methods, three batch sizes, fifteen corruptions of the photographs that "
        "come with the package. Interrupted, it goes on; done, it shows what it found.",
    )
    demo.add_argument("--out", type=Path, default=Path("rtta-demo"), metavar="DIR")
    demo.add_argument("--methods", metavar="LIST", help="names, or `all`; by default six")
    demo.add_argument("--batch-sizes", default="64,4,1", metavar="LIST")
    demo.add_argument("--images", type=int, default=256, metavar="N", help="in each corruption")
    demo.add_argument("--severity", type=int, default=5, choices=range(1, 6))
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    import torch
    from rich.console import Console

    from realistic_tta.demo.display import Display, results
    from realistic_tta.demo.experiment import clean_error
    from realistic_tta.demo.picture import draw
    from realistic_tta.demo.words import headline
    from realistic_tta.demo.workers import CORRUPTED, run, stored

    torch.set_num_threads(1)  # each worker has a core to itself
    console, start = Console(highlight=False), time.monotonic()
    setup = _setup(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    console.print(
        f"A ResNet-20 gets {clean_error():.1f} % of clean CIFAR-10 photographs wrong. Now they "
        f"come damaged in fifteen ways, one after another, {setup.images} of each: noise, blur, "
        "weather, compression. The network is not told, has no labels, and carries on.\n"
    )
    known = len(stored(setup, arguments.out))
    with Display(console, setup) as display:
        errors = run(setup, arguments.out, arguments.workers, display)
    console.print(results(errors, setup))
    console.print(headline(errors, setup))
    picture = arguments.out / "demo.png"
    draw(errors, setup, arguments.out / CORRUPTED, picture)
    console.print(f"\nPicture: {picture}; figures: {arguments.out / 'results.json'}")
    again = f"; {known} of {len(errors)} figures were there" if known else ""
    console.print(f"{time.monotonic() - start:.0f} seconds, {arguments.workers} at work{again}.")


def _setup(arguments: argparse.Namespace) -> Setup:
    from realistic_tta.demo.experiment import Setup
    from realistic_tta.methods.catalogue import METHODS

    try:
        sizes = tuple(int(word) for word in arguments.batch_sizes.split(","))
    except ValueError:
        raise ValueError(
            f'batch sizes are "{arguments.batch_sizes}"; expected numbers such as 64,4,1'
        ) from None
    names = {None: Setup.methods, "all": tuple(METHODS)}.get(arguments.methods)
    return Setup(
        names or tuple(arguments.methods.split(",")),
        sizes,
        arguments.images,
        arguments.severity,
        arguments.seed,
    )
