"""`rtta corrupt`: writes a corrupted data set in the published layout."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from realistic_tta.data.generate import Progress


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `corrupt`."""
    corrupt = commands.add_parser(
        "corrupt",
        help="write CIFAR-10-C, CIFAR-100-C or ImageNet-C anew, from the clean images",
        description="Corrupts the test images and writes them in the published layout. "
        "The same seed gives the same bytes; interrupted, the same command goes on.",
    )
    corrupt.add_argument("data", choices=("cifar10", "cifar100", "imagenet"))
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
    from realistic_tta.data.registry import CORRUPTIONS, EXTRA_CORRUPTIONS

    groups = {"all": CORRUPTIONS, "extra": EXTRA_CORRUPTIONS}
    how: dict[str, Any] = {
        "names": groups.get(arguments.corruptions) or arguments.corruptions.split(","),
        "severities": _whole_numbers(arguments.severity),
        "seed": arguments.seed,
        "workers": arguments.workers,
        "report": _report,
    }
    write = _photographs if arguments.data == "imagenet" else _arrays
    write(arguments, how)
    print(arguments.out)


def _arrays(arguments: argparse.Namespace, how: dict[str, Any]) -> None:
    from realistic_tta.data.cifar import load_cifar
    from realistic_tta.data.generate import generate

    clean = load_cifar(arguments.data, "test", arguments.source)
    count = arguments.images or len(clean)
    generate(clean.images[:count], clean.labels[:count], arguments.out, **how)


def _photographs(arguments: argparse.Namespace, how: dict[str, Any]) -> None:
    from realistic_tta.data.generate_photographs import generate_photographs
    from realistic_tta.data.imagenet import Photographs, open_imagenet

    if arguments.source is None:
        raise ValueError("imagenet needs --source, a folder with the validation photographs")
    clean = open_imagenet(arguments.source)
    count = arguments.images or len(clean)
    few = Photographs(clean.files[:count], clean.labels[:count], clean.classes)
    generate_photographs(few, arguments.out, **how)


def _report(progress: Progress) -> None:
    end = "\n" if progress.done == progress.pieces else "\r"
    if end == "\n" or sys.stderr.isatty():
        share = 100 * progress.done / progress.pieces
        print(f"{progress.name:<32}{share:5.0f} %", end=end, file=sys.stderr)


def _whole_numbers(words: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words.split(","))
    except ValueError:
        raise ValueError(f'severity is "{words}"; expected numbers such as 5 or 1,2,3') from None
