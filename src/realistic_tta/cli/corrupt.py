"""`rtta corrupt`: generates a corrupted dataset in the published layout."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realistic_tta.errors import OptionError

from .options import cores, listed, positive

if TYPE_CHECKING:
    from realistic_tta.data.generate import Progress


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `corrupt`."""
    corrupt = commands.add_parser(
        "corrupt",
        help="generate CIFAR-10-C, CIFAR-100-C or ImageNet-C from the clean images",
        description="Corrupts the test images and writes them in the published layout. The same "
        "seed gives identical bytes; after an interruption, the same command resumes.",
    )
    corrupt.add_argument("dataset", choices=("cifar10", "cifar100", "imagenet"))
    corrupt.add_argument("--out", type=Path, required=True, metavar="DIR")
    corrupt.add_argument(
        "--severities", type=listed(int), default=[1, 2, 3, 4, 5], metavar="LIST", help="1,2,3,4,5"
    )
    corrupt.add_argument(
        "--corruptions",
        type=listed(str),
        default=["all"],
        metavar="LIST",
        help="names, `all` (15), `extra` (4) or `clean`",
    )
    corrupt.add_argument("--images", type=positive, metavar="N", help="the first N; default: all")
    corrupt.add_argument("--skip", type=positive, metavar="N", help="leave out the first N images")
    corrupt.add_argument("--source", type=Path, help="the clean images; see `rtta data`")
    corrupt.add_argument("--seed", type=int, default=0)
    corrupt.add_argument("--workers", type=positive, default=cores())
    corrupt.set_defaults(run=_corrupt)


def _corrupt(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from realistic_tta.data.registry import CORRUPTIONS, EXTRA_CORRUPTIONS

    from .progress import Display

    groups = {"all": CORRUPTIONS, "extra": EXTRA_CORRUPTIONS}
    names = [name for each in arguments.corruptions for name in groups.get(each, (each,))]
    imagenet = arguments.dataset == "imagenet"  # reports every severity
    total, finished = len(names) * (len(arguments.severities) if imagenet else 1), 0
    with Display(Console(stderr=True)) as display:

        def report(progress: Progress) -> None:
            nonlocal finished
            part = progress.done / progress.pieces
            line = f"generated {progress.name}" if part == 1 else ""
            display.update((finished + part) / total, progress.name, line)
            finished += part == 1

        how = {
            "names": names,
            "severities": arguments.severities,
            "seed": arguments.seed,
            "workers": arguments.workers,
            "report": report,
        }
        (_photographs if imagenet else _arrays)(arguments, how)
    print(arguments.out)


def _arrays(arguments: argparse.Namespace, how: dict[str, Any]) -> None:
    from realistic_tta.data.cifar import load_cifar
    from realistic_tta.data.generate import generate

    clean = load_cifar(arguments.dataset, "test", arguments.source)
    few = _chosen(arguments, len(clean))
    generate(clean.images[few], clean.labels[few], arguments.out, **how)


def _photographs(arguments: argparse.Namespace, how: dict[str, Any]) -> None:
    from realistic_tta.data.generate import generate_photographs
    from realistic_tta.data.imagenet import Photographs, open_imagenet

    if arguments.source is None:
        raise OptionError("imagenet requires --source, a folder with the validation images")
    clean = open_imagenet(arguments.source)
    few = _chosen(arguments, len(clean))
    photographs = Photographs(clean.files[few], clean.labels[few], clean.classes)
    generate_photographs(photographs, arguments.out, **how)


def _chosen(arguments: argparse.Namespace, available: int) -> slice:
    """The images that --skip and --images leave."""
    start = arguments.skip or 0
    count = arguments.images or max(available - start, 1)
    if not 0 < count <= available - start:
        raise OptionError(f"{available} images; expected more for --skip {start} --images {count}")
    return slice(start, start + count)
