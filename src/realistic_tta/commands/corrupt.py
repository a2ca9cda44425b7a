"""`rtta corrupt`: writes a corrupted data set in the published layout."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `corrupt`."""
    corrupt = commands.add_parser(
        "corrupt",
        help="write CIFAR-10-C or CIFAR-100-C anew, from the clean images",
        description="Corrupts the test images and writes them as CIFAR-10-C is: one .npy a "
        "corruption. The same seed gives the same bytes; interrupted, the same command goes on.",
    )
    corrupt.add_argument("data", choices=("cifar10", "cifar100"))
    corrupt.add_argument("--out", type=Path, required=True, metavar="DIR")
    corrupt.add_argument("--severity", default="1,2,3,4,5", metavar="LIST", help="1,2,3,4,5")
    corrupt.add_argument(
        "--corruptions", default="all", metavar="LIST", help="names, `all` (15) or `extra` (4)"
    )
    corrupt.add_argument("--images", type=int, metavar="N", help="the first N; by default all")
    corrupt.add_argument("--source", type=Path, help="the clean images; see `rtta data`")
    corrupt.add_argument("--seed", type=int, default=0)
    corrupt.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    corrupt.set_defaults(run=_corrupt)


def _corrupt(arguments: argparse.Namespace) -> None:
    from realistic_tta.datasets.catalogue import CORRUPTIONS, EXTRA_CORRUPTIONS
    from realistic_tta.datasets.cifar import load_cifar
    from realistic_tta.datasets.generate import Progress, generate

    groups = {"all": CORRUPTIONS, "extra": EXTRA_CORRUPTIONS}
    names = groups.get(arguments.corruptions) or arguments.corruptions.split(",")
    clean = load_cifar(arguments.data, "test", arguments.source)
    count = arguments.images or len(clean)

    def report(progress: Progress) -> None:
        place = f"{names.index(progress.name) + 1} of {len(names)}"
        share = 100 * progress.done / progress.pieces
        end = "\n" if progress.done == progress.pieces else "\r"
        if end == "\n" or sys.stderr.isatty():
            print(f"{place:>8}  {progress.name:<18}{share:5.0f} %", end=end, file=sys.stderr)

    generate(
        clean.images[:count],
        clean.labels[:count],
        arguments.out,
        names=names,
        severities=_whole_numbers(arguments.severity),
        seed=arguments.seed,
        workers=arguments.workers,
        report=report,
    )
    print(arguments.out)


def _whole_numbers(words: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words.split(","))
    except ValueError:
        raise ValueError(f'severity is "{words}"; expected numbers such as 5 or 1,2,3') from None
