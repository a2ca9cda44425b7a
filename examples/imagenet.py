"""Compares methods on public ImageNet models and corrupted photographs.

    rtta corrupt imagenet --source PHOTOGRAPHS --out imagenet-c --severity 3 \
        --corruptions gaussian_noise,contrast,fog,jpeg_compression
    python examples/imagenet.py --clean PHOTOGRAPHS --corrupted imagenet-c

PHOTOGRAPHS is a folder of ImageNet validation photographs. The models are resnet-50-keras and
efficientnet-lite0; `rtta models` lists where to get them. A model that is missing is skipped.
Every result is stored in --out at once; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import realistic_tta
from realistic_tta.data.imagenet import open_imagenet
from realistic_tta.data.imagenet_c import open_imagenet_c
from realistic_tta.models.checkpoints import load_model
from realistic_tta.models.registry import on_disk
from realistic_tta.storage import atomic_write

CORRUPTIONS = ("gaussian_noise", "contrast", "fog", "jpeg_compression")
SEVERITY = 3
METHODS: dict[str, dict[str, Any]] = {
    "tbn": {"method": "tbn"},
    "rectified_tema": {"method": "rectified_tema", "source_batch_size": 256},
    'rectified_tema, start="source"': {
        "method": "rectified_tema",
        "source_batch_size": 256,
        "start": "source",
    },
    "realistic": {"method": "realistic", "source_batch_size": 256},
}
BATCH_SIZES = (64, 16, 1)


def models() -> dict[str, Callable[[], nn.Module]]:
    """Return the models that are present, and print the names of the others."""
    found: dict[str, Callable[[], nn.Module]] = {}
    for name in ("resnet-50-keras", "efficientnet-lite0"):
        if on_disk(name):
            found[name] = partial(load_model, name)
        else:
            print(f"{name} is skipped: `rtta models` does not find it")
    return found


class Results:
    """Errors by key, stored in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.errors: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}

    def get(self, key: str, measure: Callable[[], float]) -> float:
        """Return the stored error; measure and store it if it is missing."""
        if key not in self.errors:
            self.errors[key] = measure()
            print(f"  {key}: {self.errors[key]:.1f} % error", flush=True)
            atomic_write(self.file, json.dumps(self.errors, indent=1).encode())
        return self.errors[key]


def error(model: nn.Module, photographs: Any, order: Any, batch_size: int) -> float:
    """Return the error in percent over the photographs in this order."""
    wrong = 0
    with torch.no_grad():
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            images = torch.from_numpy(photographs.take(indices)).permute(0, 3, 1, 2) / 255
            truth = torch.from_numpy(photographs.labels[indices])
            wrong += int(torch.count_nonzero(model(images).argmax(1) != truth))
    return 100 * wrong / len(order)


def table(name: str, model: nn.Module, arguments: argparse.Namespace, results: Results) -> None:
    """Measure the missing results and print the table of one model as Markdown."""
    clean = open_imagenet(arguments.clean)
    corrupted = open_imagenet_c(arguments.corrupted, corruptions=CORRUPTIONS)
    order = np.random.default_rng(0).permutation(len(clean))[: arguments.images]
    at = f"{name}, {len(order)} photographs"
    whole = results.get(
        f"{name}, {len(clean)} photographs, clean",
        lambda: error(model, clean, np.arange(len(clean)), 64),
    )
    rows = []
    for method, options in {"source": {}, **METHODS}.items():
        for size in BATCH_SIZES if options else BATCH_SIZES[:1]:
            errors = []
            for corruption in CORRUPTIONS:
                part = corrupted.part(corruption, SEVERITY)

                def measure(options: Any = options, size: int = size, part: Any = part) -> float:
                    adapted = realistic_tta.adapt(model, **options) if options else model
                    return error(adapted, part, order, size)

                errors.append(results.get(f"{at}, {corruption}, {method}, {size}", measure))
            errors.append(sum(errors) / len(errors))
            columns = " | ".join(f"{each:.1f}" for each in errors)
            rows.append(f"| `{method}` | {size if options else 'any'} | {columns} |")
    print(f"\n**{at}** (clean, all {len(clean)}: {whole:.1f} % error)\n")
    print(f"| method | batch size | {' | '.join(CORRUPTIONS)} | mean |")
    print("|---|---|" + (len(CORRUPTIONS) + 1) * "---|")
    print("\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description="Test-time adaptation of public ImageNet models.")
    parser.add_argument("--clean", type=Path, required=True, metavar="PHOTOGRAPHS")
    parser.add_argument("--corrupted", type=Path, required=True, metavar="IMAGENET-C")
    parser.add_argument("--images", type=int, default=1000, help="number of photographs")
    parser.add_argument("--model", help="run only this model")
    parser.add_argument("--out", type=Path, default=Path("imagenet.json"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    for folder in (arguments.clean, arguments.corrupted):
        if not folder.is_dir():
            raise SystemExit(f"skipped: {folder} is missing; the top of this file describes it")
    torch.set_num_threads(arguments.threads)
    results = Results(arguments.out)
    for name, build in models().items():
        if arguments.model in (None, name):
            table(name, build().eval(), arguments, results)


if __name__ == "__main__":
    main()
