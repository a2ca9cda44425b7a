"""`rtta train`: trains a source model and writes its weights with a model card."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import fraction, positive

if TYPE_CHECKING:
    from torch import nn

    from realistic_tta.data.images import Images
    from realistic_tta.models.training import Progress, Recipe


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train`."""
    train = commands.add_parser(
        "train",
        help="train a source model on clean images",
        description="Trains with random flips and crops. Saves after every epoch and resumes from "
        "there. Writes NAME.safetensors and the model card NAME.json.",
    )
    train.add_argument("--dataset", choices=("cifar10", "cifar100"), default="cifar10")
    train.add_argument("--arch", default="resnet-20", help="resnet-20 or wrn-16-2 (resnet-20)")
    train.add_argument("--augmix", action="store_true", help="as the paper's CIFAR-100 model")
    train.add_argument("--epochs", type=positive, default=40)
    train.add_argument(
        "--early-side", type=positive, help="crop size in the first 3/4 of the epochs; faster"
    )
    train.add_argument(
        "--label-smoothing", type=fraction, default=0.1, metavar="E", help="0 to 1 (0.1)"
    )
    train.add_argument("--bn-momentum", type=fraction, metavar="M", help="keep running statistics")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--name", help="of the files; default: by architecture, dataset and AugMix")
    train.add_argument("--source", type=Path, help="the clean images; see `rtta data`")
    train.add_argument("--out", type=Path, help="default: the model folder; see `rtta models`")
    train.add_argument("--threads", type=positive, help="of torch; use 1 beside other programs")
    train.set_defaults(run=_train)


def _train(arguments: argparse.Namespace) -> None:
    import torch

    from realistic_tta.data.cifar import load_cifar
    from realistic_tta.models.registry import models_folder
    from realistic_tta.models.training import Recipe

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    clean = load_cifar(arguments.dataset, "train", arguments.source)
    recipe = Recipe(
        epochs=arguments.epochs,
        seed=arguments.seed,
        augmix=arguments.augmix,
        early_side=arguments.early_side,
        label_smoothing=arguments.label_smoothing,
        bn_momentum=arguments.bn_momentum,
    )
    name = arguments.name or _name(arguments)
    out = arguments.out or models_folder()
    model = _run(arguments, clean, recipe, out / f"{name}.checkpoint.safetensors")
    card = _card(arguments, recipe, model, load_cifar(arguments.dataset, "test", arguments.source))
    _write(model, card, out / f"{name}.safetensors")
    print(f"{out / name}.safetensors: {card['clean_error']:.2f} % error on clean test images")


def _name(arguments: argparse.Namespace) -> str:
    others = [arguments.dataset] if arguments.dataset != "cifar10" else []
    return "-".join([arguments.arch, *others, *(["augmix"] if arguments.augmix else [])])


def _run(
    arguments: argparse.Namespace, clean: Images, recipe: Recipe, checkpoint: Path
) -> nn.Module:
    import torch
    from rich.console import Console

    from realistic_tta.models.registry import build
    from realistic_tta.models.training import train

    from .progress import Display

    begin = "resuming from" if checkpoint.exists() else "saving to"
    torch.manual_seed(recipe.seed)
    with Display(Console(stderr=True)) as display:
        title = f"{arguments.arch}, {len(clean):,} images, {recipe.epochs} epochs"
        display.console.print(f"training {title}; {begin} {checkpoint}", soft_wrap=True)

        def report(progress: Progress) -> None:
            done = progress.epoch / progress.epochs
            line = (
                f"epoch {progress.epoch} of {progress.epochs}: loss {progress.loss:.3f}, "
                f"{progress.error:.1f} % training error"
            )
            display.update(done, line, line + display.left(done))

        return train(
            build(arguments.arch, len(clean.classes)),
            torch.from_numpy(clean.images.transpose(0, 3, 1, 2).copy()),
            torch.from_numpy(clean.labels),
            recipe,
            checkpoint=checkpoint,
            report=report,
        )


def _write(model: nn.Module, card: dict[str, Any], path: Path) -> None:
    from safetensors.torch import save

    from realistic_tta.storage import atomic_write

    weights = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
    atomic_write(path, save(weights, {"model": card["model"], "dataset": card["dataset"]}))
    atomic_write(path.with_suffix(".json"), json.dumps(card, indent=1).encode())


def _card(
    arguments: argparse.Namespace, recipe: Recipe, model: nn.Module, test: Images
) -> dict[str, Any]:
    """The model card: training recipe, and errors on clean and corrupted images."""
    import numpy as np

    from realistic_tta.data.corruptions import corrupt
    from realistic_tta.data.registry import CORRUPTIONS

    errors = {}
    for name in CORRUPTIONS:
        images = corrupt(np.asarray(test.images[:2000]), name, 5, np.random.default_rng(0))
        errors[name] = _error(model, images, test.labels[:2000])
    return {
        "model": arguments.arch,
        "dataset": arguments.dataset,
        "recipe": asdict(recipe),
        "source_batch_size": recipe.batch_size,
        "clean_error": _error(model, np.asarray(test.images), test.labels),
        "error_by_corruption": errors,
        "corrupted": "severity 5, the first 2,000 test images, seed 0",
    }


def _error(model: nn.Module, images: Any, labels: Any) -> float:
    """The error in percent."""
    import torch

    wrong = 0
    with torch.no_grad():
        for start in range(0, len(labels), 200):
            batch = torch.from_numpy(images[start : start + 200].copy()).permute(0, 3, 1, 2) / 255
            truth = torch.from_numpy(labels[start : start + 200])
            wrong += int(torch.count_nonzero(model(batch).argmax(1) != truth))
    return 100 * wrong / len(labels)
