"""`rtta train`: makes a source network, with a card that says what it is."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from realistic_tta.data.images import Images
    from realistic_tta.models.training import Progress, Recipe


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train`."""
    train = commands.add_parser(
        "train",
        help="train a source network on clean images",
        description="Trains on flips and crops of clean images; saves after every epoch, and goes "
        "on from there. Ends with NAME.safetensors and NAME.json, its card.",
    )
    train.add_argument("--data", choices=("cifar10", "cifar100"), default="cifar10")
    train.add_argument("--arch", default="resnet-20", help="resnet-20 or wrn-16-2 (resnet-20)")
    train.add_argument("--augmix", action="store_true", help="as the paper's CIFAR-100 network")
    train.add_argument("--epochs", type=int, default=40)
    train.add_argument(
        "--early-side", type=int, help="crops of this side in the first 3/4 of the epochs; faster"
    )
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--source", type=Path, help="the clean images; see `rtta data`")
    train.add_argument(
        "--out", type=Path, help="where networks are looked for; see `rtta networks`"
    )
    train.add_argument("--threads", type=int, help="of torch; 1 if anything else runs")
    train.set_defaults(run=_train)


def _train(arguments: argparse.Namespace) -> None:
    import torch
    from safetensors.torch import save_file

    from realistic_tta.data.cifar import load_cifar
    from realistic_tta.models.registry import build, networks_folder
    from realistic_tta.models.training import Recipe, train

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    clean = load_cifar(arguments.data, "train", arguments.source)
    recipe = Recipe(
        epochs=arguments.epochs,
        seed=arguments.seed,
        augmix=arguments.augmix,
        early_side=arguments.early_side,
    )
    torch.manual_seed(recipe.seed)
    others = (arguments.data != "cifar10") * [arguments.data] + arguments.augmix * ["augmix"]
    name = "-".join([arguments.arch, *others])
    out = arguments.out or networks_folder()
    checkpoint = out / f"{name}.checkpoint.pt"
    print(
        f"{'going on with' if checkpoint.exists() else 'training'} {name}: {len(clean):,} images, "
        f"{recipe.epochs} epochs; saved after each as {checkpoint}",
        file=sys.stderr,
        flush=True,
    )
    network = train(
        build(arguments.arch, len(clean.classes)),
        torch.from_numpy(clean.images.transpose(0, 3, 1, 2).copy()),
        torch.from_numpy(clean.labels),
        recipe,
        checkpoint=checkpoint,
        report=_Clock(),
    )
    test = load_cifar(arguments.data, "test", arguments.source)
    card = _card(arguments, recipe, network, test)
    weights = {key: tensor.contiguous() for key, tensor in network.state_dict().items()}
    partial = out / f"{name}.partial"
    save_file(weights, partial, metadata={"network": arguments.arch, "data": arguments.data})
    partial.replace(out / f"{name}.safetensors")
    (out / f"{name}.json").write_text(json.dumps(card, indent=1))
    print(f"{out / name}.safetensors: {card['clean_error']:.2f} % wrong on clean test images")


class _Clock:
    """One line an epoch, with the time to go."""

    def __init__(self) -> None:
        self.start, self.first = time.monotonic(), 0

    def __call__(self, progress: Progress) -> None:
        self.first = self.first or progress.epoch
        each = (time.monotonic() - self.start) / (progress.epoch - self.first + 1)
        left = each * (progress.epochs - progress.epoch) / 60
        print(
            f"epoch {progress.epoch} of {progress.epochs}: loss {progress.loss:.3f}, "
            f"{progress.error:.1f} % wrong in training, {left:.0f} minutes to go",
            file=sys.stderr,
            flush=True,
        )


def _card(
    arguments: argparse.Namespace, recipe: Recipe, network: nn.Module, test: Images
) -> dict[str, Any]:
    """What the network is, how it was made, and how wrong it is, clean and corrupted."""
    import numpy as np

    from realistic_tta.data.corruptions import corrupt
    from realistic_tta.data.registry import CORRUPTIONS

    errors = {}
    for name in CORRUPTIONS:
        images = corrupt(np.asarray(test.images[:2000]), name, 5, np.random.default_rng(0))
        errors[name] = _error(network, images, test.labels[:2000])
    return {
        "network": arguments.arch,
        "data": arguments.data,
        "recipe": asdict(recipe),
        "source_batch_size": recipe.batch_size,
        "clean_error": _error(network, np.asarray(test.images), test.labels),
        "error_by_corruption": errors,
        "corrupted": "severity 5, the first 2,000 test images, seed 0",
    }


def _error(network: nn.Module, images: Any, labels: Any) -> float:
    """Percent wrong."""
    import torch

    wrong = 0
    with torch.no_grad():
        for start in range(0, len(labels), 200):
            batch = torch.from_numpy(images[start : start + 200].copy()).permute(0, 3, 1, 2) / 255
            truth = torch.from_numpy(labels[start : start + 200])
            wrong += int(torch.count_nonzero(network(batch).argmax(1) != truth))
    return 100 * wrong / len(labels)
