"""The error of realistic, domains and rectified_tema over settings and batch sizes.

docs/beyond.md has the tables.

python tools/beyond_grid.py run GRID.jsonl --seeds 1,2,3
python tools/beyond_grid.py run GRID.jsonl --data cifar100-c --batch-sizes 200,16,1
python tools/beyond_grid.py run GRID.jsonl --times 10
python tools/beyond_grid.py run GRID.jsonl --methods realistic,domains --settings mixed
python tools/beyond_grid.py run GRID.jsonl --settings "continual, 50 images" --draw --seeds 1,2,3
python tools/beyond_grid.py show GRID.jsonl

Besides the settings of `rtta bench`: short streams, streams that tell of every change, clean
images, and batches of changing size (1 to 64 images at random, once for all batch sizes). What is
in the file is not run again.
cifar100-c must be on disk (`rtta corrupt`), and cifar100 for its clean images (`--clean FOLDER`);
those of CIFAR-10 are the package's photographs. Of these every seed has the same, the first; with
--draw each draws its own among all, as it does from a data set on disk.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from tempfile import gettempdir
from typing import Any, NamedTuple

import torch
from torch import Tensor

import realistic_tta
from realistic_tta.benchmark.data import DATA, IN_PACKAGE, open_stream, prepare
from realistic_tta.benchmark.scenarios import StreamPlan
from realistic_tta.benchmark.stream import Stream
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.cifar import load_cifar
from realistic_tta.data.images import Images
from realistic_tta.models.checkpoints import load_model

METHODS = ("source", "rectified_tema", "realistic", "domains")
SHOWN = ("realistic", "rectified_tema", "domains")  # the first must be there
SIZES = (200, 64, 16, 4, 2, 1)
Batches = Iterator[tuple[Tensor, Tensor]]


class Setting(NamedTuple):
    """plan: of `rtta bench`; None for clean images. images: of each corruption, times --times.

    told: everything is forgotten where a corruption begins, as if somebody told of it.
    """

    plan: dict[str, Any] | None
    images: int = 50
    changing: bool = False
    told: bool = False


SETTINGS = {
    "continual, 200 images": Setting({}, images=200),
    "continual, told of changes": Setting({}, images=200, told=True),
    "continual, 50 images": Setting({}),
    "mixed": Setting({"setting": "mixed"}),
    "gradual": Setting({"setting": "gradual"}),
    "sorted": Setting({"setting": "correlated"}, images=200),
    "Dirichlet 0.1": Setting({"setting": "correlated", "delta": 0.1}, images=200),
    "Dirichlet 1": Setting({"setting": "correlated", "delta": 1.0}, images=200),
    "changing sizes": Setting({}, changing=True),
    "clean": Setting(None),
}


def batches(record: dict[str, Any], folder: Path, clean: Path | None) -> Batches:
    """Of the stream that a record names, in order."""
    setting, size, seed = SETTINGS[record["setting"]], record["size"], record["seed"]
    images = setting.images * record["times"]
    if setting.plan is None:
        photos = load_sample() if clean is None else load_cifar("cifar100", "test", clean)
        yield from _clean(photos, images * 15, size, seed)
        return
    plan = StreamPlan(images=images, seed=seed, **setting.plan)
    name = IN_PACKAGE.get(record["data"], record["data"])
    among = replace(plan, images=None) if record["drawn"] else plan
    prepare(name, among, folder, workers=1)
    whole = open_stream(name, among, folder)
    stream = Stream(plan, whole.parts, whole.contents)
    if not setting.changing:
        yield from ((batch.images, batch.labels) for batch in stream.batches(size))
        return
    generator = torch.Generator().manual_seed(seed)
    for part in stream.batches(images):  # a corruption at a time
        sizes = torch.randint(1, 65, (len(part.labels),), generator=generator).cumsum(0)
        ends = [end for end in sizes.tolist() if end < len(part.labels)]
        pieces = (each.tensor_split(ends) for each in (part.images, part.labels))
        yield from zip(*pieces, strict=True)


def _clean(whole: Images, count: int, size: int, seed: int) -> Batches:
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))[:count]
    pixels = torch.from_numpy(whole.images[order]).permute(0, 3, 1, 2).float().div(255)
    labels = torch.from_numpy(whole.labels[order])
    return zip(pixels.split(size), labels.split(size), strict=True)


def error(
    method: str, network: torch.nn.Module, stream: Batches, forget_after: int | None
) -> float:
    """Percent wrong."""
    adapted = realistic_tta.adapt(network, method)
    wrong: list[Tensor] = []
    for images, labels in stream:
        if forget_after and sum(map(len, wrong)) % forget_after == 0:
            adapted.reset()
        wrong.append(adapted(images).argmax(dim=1) != labels)
    return 100 * torch.cat(wrong).float().mean().item()


def run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    network = load_model(str(DATA[arguments.data].embedded))
    known = {cell_of(record) for record in read(arguments.file)}
    for record in wanted(arguments):
        if cell_of(record) in known:
            continue
        setting = SETTINGS[record["setting"]]
        forget_after = setting.images * record["times"] if setting.told else None
        stream = batches(record, arguments.folder, arguments.clean)
        record["error"] = round(error(record["method"], network, stream, forget_after), 3)
        with arguments.file.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(*record.values(), flush=True)


def wanted(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The source once for all batch sizes; clean images where there are any."""
    sizes = arguments.batch_sizes
    for seed, name in itertools.product(arguments.seeds, arguments.settings):
        if name == "clean" and arguments.data != "cifar10-c" and arguments.clean is None:
            continue
        for size in sizes[:1] if SETTINGS[name].changing else sizes:
            for method in arguments.methods:
                if method == "source" and size != sizes[0]:
                    continue
                record = {"data": arguments.data, "setting": name, "size": size, "seed": seed}
                more = {"times": arguments.times, "drawn": arguments.draw}
                yield record | {"method": method} | more


def cell_of(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[key] for key in _CELL)


_CELL = ("data", "setting", "size", "seed", "method", "times", "drawn")


def read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [{"drawn": False} | json.loads(line) for line in lines]


def show(records: list[dict[str, Any]]) -> None:
    """A Markdown table a data set: realistic / rectified_tema / domains, means over seeds."""
    keys = ("data", "times", "drawn")
    for key in dict.fromkeys(tuple(record[key] for key in keys) for record in records):
        mine = [each for each in records if tuple(each[name] for name in keys) == key]
        seeds = len({record["seed"] for record in mine})
        data, times, drawn = key
        longer = f", {times} times the images" if times > 1 else ""
        drawn = ", each with photographs of its own" if drawn else ""
        print(f"\n{data}, {seeds} seed{'s' if seeds > 1 else ''}{longer}{drawn}\n")
        print("| | source | " + " | ".join(map(str, SIZES)) + " |")
        print("|---|---:|" + "---:|" * len(SIZES))
        for setting in SETTINGS:
            if any(record["setting"] == setting for record in mine):
                cells = [_cell(mine, setting, size) for size in SIZES]
                source = _mean(mine, setting, "source", None)
                print(f"| {setting} | {source} | " + " | ".join(cells) + " |")

        for setting in SETTINGS:
            _show_smallest(mine, setting)


def _show_smallest(records: list[dict[str, Any]], setting: str) -> None:
    """What realistic loses by single images, with its standard error over seeds."""
    errors = {
        (record["seed"], record["size"]): record["error"]
        for record in records
        if (record["setting"], record["method"]) == (setting, SHOWN[0])
    }
    lost = [
        errors[seed, 1] - errors[seed, 200]
        for seed, size in errors
        if size == 1
        if (seed, 200) in errors
    ]
    if len(lost) > 2:
        spread = stdev(lost) / len(lost) ** 0.5
        print(f"\n{setting}: batch size 1 above 200 by {fmean(lost):.2f} ± {spread:.2f}")


def _cell(records: list[dict[str, Any]], setting: str, size: int) -> str:
    found = [_mean(records, setting, method, size) for method in SHOWN]
    return " / ".join(each for each in found if each) if found[0] else ""


def _mean(records: list[dict[str, Any]], setting: str, method: str, size: int | None) -> str:
    found = [
        record["error"]
        for record in records
        if (record["setting"], record["method"]) == (setting, method)
        and size in (None, record["size"])
    ]
    return f"{fmean(found):.1f}" if found else ""


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", choices=["cifar10-c", "cifar100-c"], default="cifar10-c")
    parser.add_argument("--times", type=int, default=1, help="the images of each setting")
    parser.add_argument("--draw", action="store_true", help="photographs anew with every seed")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=[*METHODS[:3]])
    parser.add_argument("--seeds", type=_numbers, default=[1])
    parser.add_argument("--batch-sizes", type=_numbers, default=[*SIZES])
    parser.add_argument("--settings", type=lambda text: text.split("/"), default=[*SETTINGS])
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "rtta-beyond")
    parser.add_argument("--clean", type=Path, help="where the images of cifar100 are")
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments)
    show(read(arguments.file))


if __name__ == "__main__":
    main()
