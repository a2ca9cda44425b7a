"""Every method with and without the guard, on shifted and on clean images, at six batch sizes.

    python tools/guard_table.py [--out guard.jsonl] [--methods tent,tbn] [--batches 1,4]
    python tools/guard_table.py --folder CIFAR-100-C --network cifar100

Shifted: 800 of the package's photographs under four corruptions of severity 5, one after another;
clean: 800 others as they are. With a folder (as `rtta corrupt` writes it) its images take the place
of the shifted ones. Each run is a line of the file; those that are there are not run again. Ends
with the table: percent of images predicted wrongly, falls, and how many the source answered.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realistic_tta import adapt
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.cifar_c import open_cifar_c
from realistic_tta.data.corruptions import corrupt
from realistic_tta.models.checkpoints import load_model

CORRUPTIONS = "gaussian_noise,fog,motion_blur,brightness"
METHODS = "tent,rectified_tema,tbn,eta,cotta,tema,realistic,sar,adacontrast,alpha_bn,adapt_bn,lame"
EACH = 200  # images of a corruption
SETTINGS: dict[str, dict[str, Any]] = {"cotta": {"views": 2}}  # of 32, which take an hour
Stream = tuple[Tensor, Tensor]


def streams(corruptions: list[str], folder: Path | None, classes: int) -> dict[str, Stream]:
    """By name: images (image, 3, row, column) from 0 to 1, and labels."""
    if folder is not None:
        return {"shifted": from_folder(folder, corruptions, classes)}
    sample = load_sample()
    count = EACH * len(corruptions)
    shifted = [
        corrupt(part, name, 5, generator=np.random.default_rng(0))
        for part, name in zip(
            sample.images[:count].reshape(-1, EACH, 32, 32, 3), corruptions, strict=True
        )
    ]
    clean = slice(count, 2 * count)
    return {
        "shifted": (to_tensor(np.concatenate(shifted)), torch.tensor(sample.labels[:count])),
        "clean": (to_tensor(sample.images[clean]), torch.tensor(sample.labels[clean])),
    }


def from_folder(folder: Path, corruptions: list[str], classes: int) -> Stream:
    """Other images of each corruption, drawn at random."""
    data = open_cifar_c(folder, tuple(map(str, range(classes))), corruptions=tuple(corruptions))
    images, labels = [], []
    order = np.random.default_rng(0).permutation(len(data.part(corruptions[0], 5).labels))
    for number, name in enumerate(corruptions):
        part, places = data.part(name, 5), order[number * EACH : (number + 1) * EACH]
        images.append(part.images[places])
        labels.append(np.asarray(part.labels)[places])
    return to_tensor(np.concatenate(images)), torch.tensor(np.concatenate(labels))


def to_tensor(images: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2) / 255


def run(network: Any, stream: Stream, method: str, batch: int, *, guard: bool) -> dict[str, Any]:
    """Percent wrong, and what the guard did."""
    images, labels = stream
    torch.manual_seed(0)
    adapted = adapt(network, method, guard=guard, **SETTINGS.get(method, {}))
    start = time.process_time()
    outputs = torch.cat([adapted(part) for part in images.split(batch)])
    health = adapted.health()
    return {
        "wrong": 100 * float((outputs.argmax(dim=1) != labels).float().mean()),
        "falls": health.falls,
        "by_source": health.by_source,
        "seconds": time.process_time() - start,
    }


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The runs of the file, by their key."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {record["key"]: record for record in map(json.loads, lines)}


def table(records: dict[str, dict[str, Any]], network: str) -> Iterator[str]:
    """A line for each method and batch size that was run: of each stream, without and with."""
    own = {key.removeprefix(f"{network}/"): each for key, each in records.items()}
    runs = {tuple(key.split("/")): each for key, each in own.items() if key.count("/") == 3}
    names = list(dict.fromkeys(stream for stream, *_ in runs))
    heads = [f"{name} | with the guard | by source | falls" for name in names]
    yield f"| method | batch size | {' | '.join(heads)} |"
    yield f"|{'---|' * (2 + 4 * len(names))}"
    for method, batch in sorted({run[1:3] for run in runs}, key=_order):
        cells = [_cells(runs, name, method, batch) for name in names]
        yield f"| {method} | {batch} | {' | '.join(cells)} |"


def _order(row: tuple[str, ...]) -> tuple[int, int]:
    method, batch = row
    return ["source", *METHODS.split(",")].index(method), int(batch)


def _cells(runs: dict[Any, dict[str, Any]], stream: str, method: str, batch: str) -> str:
    plain, watched = (runs.get((stream, method, batch, guard)) for guard in ("off", "on"))
    wrong = f"{plain['wrong']:.1f}" if plain else ""
    if watched is None:
        return f"{wrong} |  |  | "
    return f"{wrong} | {watched['wrong']:.1f} | {watched['by_source']} | {watched['falls']}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Methods with and without the guard.")
    parser.add_argument("--out", type=Path, default=Path("guard.jsonl"))
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--batches", default="200,64,16,4,2,1")
    parser.add_argument("--network", choices=("cifar10", "cifar100"), default="cifar10")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--corruptions", default=CORRUPTIONS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    network = load_model(given.network)
    found = streams(given.corruptions.split(","), given.folder, int(given.network[5:]))
    wanted = [(stream, "source", 200, "off") for stream in found]
    for method in given.methods.split(","):
        for batch in map(int, given.batches.split(",")):
            wanted += [(name, method, batch, guard) for name in found for guard in ("off", "on")]
    records = read(given.out)
    for stream, method, batch, guard in wanted:
        key = f"{given.network}/{stream}/{method}/{batch}/{guard}"
        if key not in records:
            figures = run(network, found[stream], method, batch, guard=guard == "on")
            records[key] = {"key": key, **figures}
            with given.out.open("a") as file:
                file.write(json.dumps(records[key]) + "\n")
    print("\n".join(table(records, given.network)))


if __name__ == "__main__":
    main()
