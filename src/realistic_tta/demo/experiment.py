"""What the demo measures: the package's network on the package's photographs, by the benchmark.

commands/demo.py runs it; words.py, display.py and picture.py say what came out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from realistic_tta.benchmark.experiment import Experiment
from realistic_tta.models.registry import EMBEDDED

NETWORK, DATA = "cifar10", "cifar10-c-sample"


@dataclass(frozen=True)
class Setup:
    """images: how many photographs are shown in each corruption. seed: of their order."""

    methods: tuple[str, ...] = (
        "source",
        "tbn",
        "alpha_bn",
        "adapt_bn",
        "tema",
        "rectified_tema",
        "realistic",
    )
    batch_sizes: tuple[int, ...] = (64, 4, 1)
    images: int = 256
    seed: int = 1

    def experiments(self) -> list[Experiment]:
        """One a cell of the table, but for the source: it is the same at every batch size."""
        return [
            Experiment(NETWORK, DATA, "continual", method, size, seed=self.seed, images=self.images)
            for method in self.methods
            for size in (self.batch_sizes[:1] if method == "source" else self.batch_sizes)
        ]


def clean_error() -> float:
    """Percent wrong of the network as trained on CIFAR-10's own test images, from its card."""
    card = json.loads((EMBEDDED / f"{NETWORK}.json").read_text())
    return float(card["clean_error"])
