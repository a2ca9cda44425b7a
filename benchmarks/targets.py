"""Adaptation against plain inference: floor, ours, aim, at batch sizes 200, 16 and 1.

    make bench
    python benchmarks/targets.py --compiled --json cost.json --history docs/performance.md
    python benchmarks/targets.py --network resnet50 --batch-sizes 16,1

One torch thread. The floor is the number of passes; the aim, what this package set out for.
ResNet-50 sees 224 px, where a batch of 200 takes minutes a pass.
"""

from __future__ import annotations

import argparse
import copy
import datetime as dt
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import memory
import torch
from timing import Ratio, compare
from torch import Tensor, nn

import realistic_tta
from realistic_tta.models.resnet import CifarResNet, ResNet50

NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet20": (lambda: CifarResNet(20, 10), 32),
    "resnet50": (lambda: ResNet50(1000), 224),
}


class Row(NamedTuple):
    """A line of the table. against: the plain network, "eager" or "compiled"."""

    title: str
    settings: dict[str, object]
    against: str
    floor: float
    aim: dict[int, float]
    network: str = "resnet20"

    @property
    def is_compiled(self) -> bool:
        return bool(self.settings.get("compile"))


def _aim(*values: float) -> dict[int, float]:
    return dict(zip((200, 16, 1), values, strict=True))


EXACT: dict[str, object] = {"method": "rectified_tema"}
ONCE = EXACT | {"passes": 1}
COMPILED = {"compile": True}
ROWS = [
    Row("rectified_tema", EXACT, "eager", 2, _aim(2.05, 2.15, 2.35)),
    Row("rectified_tema, passes=1", ONCE, "eager", 1, _aim(1.08, 1.15, 1.35)),
    Row("tema", {"method": "tema"}, "eager", 1, _aim(1.06, 1.12, 1.25)),
    Row("tbn", {"method": "tbn"}, "eager", 1, _aim(1.06, 1.12, 1.25)),
    Row("passes=1, compiled", ONCE | COMPILED, "compiled", 1, _aim(1.10, 1.00, 1.10)),
    Row("passes=1, compiled", ONCE | COMPILED, "eager", 1, _aim(0.62, 0.62, 0.88)),
    Row("rectified_tema, compiled", EXACT | COMPILED, "compiled", 2, _aim(2.10, 2.00, 2.15)),
    Row("rectified_tema", EXACT, "eager", 2, _aim(2.05, 2.05, 2.10), "resnet50"),
]
MEMORY = 1.1  # most bytes alive at once, over the plain forward's


def measure(
    rows: list[Row], network: str, size: int, most_seconds: float
) -> Iterator[tuple[Row, Ratio, float | None]]:
    """Each row's ratio at one batch size, and its memory's."""
    build, side = NETWORKS[network]
    torch.manual_seed(0)
    plain = build().eval()
    images = torch.rand(size, 3, side, side)
    for row in rows:
        if row.network != network:
            continue
        base = plain
        if row.against == "compiled":
            base = torch.compile(copy.deepcopy(plain), fullgraph=True, dynamic=False)  # type: ignore[assignment]
        adapted = realistic_tta.adapt(plain, **row.settings)  # type: ignore[arg-type]
        found = compare(_call(base, images), {"": _call(adapted, images)}, most_seconds)[""]
        most = None if row.is_compiled else _memory(plain, adapted, images)
        yield row, found, most


def _memory(plain: nn.Module, adapted: nn.Module, images: Tensor) -> float:
    return memory.peak(adapted, _call(adapted, images)) / memory.peak(plain, _call(plain, images))


def _call(network: nn.Module, images: Tensor) -> Callable[[], object]:
    return lambda: network(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--network", choices=[*NETWORKS], default="resnet20")
    parser.add_argument("--batch-sizes", default="200,16,1")
    parser.add_argument("--seconds", type=float, default=20.0, help="most, for each figure")
    parser.add_argument("--compiled", action="store_true", help="those rows too; takes minutes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--history", type=Path, help="a Markdown file to add a line a row to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [int(size) for size in arguments.batch_sizes.split(",")]
    rows = [row for row in ROWS if arguments.compiled or not row.is_compiled]
    rows = [row for row in rows if row.network == arguments.network]
    table: dict[int, dict[int, tuple[Ratio, float | None]]] = {}
    with torch.no_grad():
        for size in sizes:
            for row, ratio, most in measure(rows, arguments.network, size, arguments.seconds):
                table.setdefault(rows.index(row), {})[size] = ratio, most
                print(f"  {row.title} / {row.against}, {size}: {ratio} {ratio.turns}", flush=True)
    _print(rows, sizes, table)
    _write(arguments, rows, table)


def _print(
    rows: list[Row], sizes: list[int], table: dict[int, dict[int, tuple[Ratio, float | None]]]
) -> None:
    print(
        f"\none thread, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}; "
        "ratio (aim), memory over the plain forward"
    )
    print(f"{'':28}{'against':>10}{'floor':>7}" + "".join(f"{size:>22}" for size in sizes))
    for place, row in enumerate(rows):
        cells = ""
        for size in sizes:
            ratio, most = table[place][size]
            held = f" {most:.2f}x" if most else ""
            cells += f"{f'{ratio} ({row.aim[size]:.2f}){held}':>22}"
        print(f"{row.title:28}{row.against:>10}{row.floor:>7g}{cells}")
    print('"?": the spread stayed above 3 percent')


def _write(
    arguments: argparse.Namespace,
    rows: list[Row],
    table: dict[int, dict[int, tuple[Ratio, float | None]]],
) -> None:
    day = dt.datetime.now(tz=dt.UTC).date().isoformat()
    records = [
        {
            "day": day,
            "version": realistic_tta.__version__,
            "network": row.network,
            "method": row.title,
            "against": row.against,
            "batch_size": size,
            "ratio": round(ratio.ratio, 3),
            "spread": round(ratio.spread, 3),
            "turns": ratio.turns,
            "floor": row.floor,
            "aim": row.aim[size],
            "memory": most and round(most, 3),
            "memory_aim": MEMORY,
        }
        for place, row in enumerate(rows)
        for size, (ratio, most) in table[place].items()
    ]
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1) + "\n")
    if arguments.history:
        lines = [
            f"| {day} | {row.network} | {row.title} | {row.against} | "
            + " / ".join(str(table[place][size][0]) for size in table[place])
            + " |"
            for place, row in enumerate(rows)
        ]
        with arguments.history.open("a") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
