"""Trains a source network: one-cycle SGD on clean images, resumable to the bit after each epoch.

The recipe knows nothing of the test corruptions: flips and crops, and AugMix if asked for, so that
the shift they bring is a shift. The network that comes out is the average of its weights over the
last steps, with BatchNorm statistics measured again, on images augmented as in training: those of
plain ones are others, for they lack the black borders, and cost a ResNet-20 two points.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from realistic_tta.errors import ModelError

from .augmix import augmix

MEASURED = 10_000  # images that the final statistics are taken from


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    batch_size is what `adapt` calls source_batch_size. averaging: weight that the average of the
    weights keeps at each step. augmix: mix every image with chains of operations on itself.
    early_side: side of the crops in the first three quarters of the epochs, None for whole images;
    smaller crops train faster, and the last quarter gets the network used to the true size.
    """

    epochs: int = 40
    batch_size: int = 128
    peak_rate: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 5e-4  # on weights; none on biases and BatchNorm
    label_smoothing: float = 0.1
    averaging: float = 0.999
    padding: int = 4
    augmix: bool = False
    seed: int = 0
    early_side: int | None = None


@dataclass(frozen=True)
class Progress:
    """What is known after an epoch; error in percent, on the batches trained with."""

    epoch: int
    epochs: int
    loss: float
    error: float


def train(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    *,
    checkpoint: Path,
    report: Callable[[Progress], None] = lambda _: None,
) -> nn.Module:
    """The trained network, in eval mode; goes on from the checkpoint if there is one.

    images: (image, colour, row, column), whole numbers from 0 to 255. labels: (image,).
    """
    steps = len(images) // recipe.batch_size
    if recipe.epochs * steps < 8:
        raise ValueError(
            f"{len(images)} images in batches of {recipe.batch_size} for {recipe.epochs} epochs "
            f"are {recipe.epochs * steps} steps; expected at least 8"
        )
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = copy.deepcopy(network)
    optimizer = _optimizer(network, recipe)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.peak_rate, total_steps=recipe.epochs * steps, pct_start=0.25
    )
    parts: dict[str, Any] = {
        "network": network,
        "average": average,
        "optimizer": optimizer,
        "schedule": schedule,
    }
    for epoch in range(_resume(checkpoint, parts, recipe), recipe.epochs):
        loss, error = _epoch(parts, images, labels, recipe, epoch)
        _save(checkpoint, parts, recipe, epoch + 1)
        report(Progress(epoch + 1, recipe.epochs, loss, error))
    generator = torch.Generator().manual_seed(recipe.seed)
    few = images[:MEASURED].split(recipe.batch_size)
    remeasure(average, (_views(batch, recipe, generator) for batch in few))
    return average.eval()


def augment(
    images: Tensor, padding: int, generator: torch.Generator, side: int | None = None
) -> Tensor:
    """Square crops: each image flipped with probability 1/2, moved by up to `padding` pixels.

    The border that comes into view is black. side: of the crop; None for the image's own.
    """
    count, _, whole, _ = images.shape
    side = side or whole
    padded = functional.pad(images, (padding,) * 4)
    flips = torch.rand(count, generator=generator) < 0.5
    padded = torch.where(flips[:, None, None, None], padded.flip(3), padded)
    places = whole + 2 * padding - side + 1
    corners = torch.randint(places, (2, count), generator=generator)
    rows = corners[0][:, None] + torch.arange(side)  # (image, row)
    columns = corners[1][:, None] + torch.arange(side)  # (image, column)
    image = torch.arange(count)[:, None, None]
    picked = padded[image, :, rows[:, :, None], columns[:, None, :]]  # (image, row, column, colour)
    return picked.permute(0, 3, 1, 2)


def remeasure(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Sets every BatchNorm's running statistics to the plain mean over the batches."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]  # noqa: SLF001
    for norm in norms:
        norm.reset_running_stats()
    before = [norm.momentum for norm in norms]
    network.train()
    with torch.no_grad():
        for number, batch in enumerate(batches, start=1):
            for norm in norms:
                norm.momentum = 1 / number  # a cumulative mean
            network(_floats(batch))
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum


def _epoch(
    parts: dict[str, Any], images: Tensor, labels: Tensor, recipe: Recipe, epoch: int
) -> tuple[float, float]:
    network, average = parts["network"].train(), parts["average"]
    generator = torch.Generator().manual_seed(recipe.seed * 100_003 + epoch)
    order = torch.randperm(len(images), generator=generator)
    batches = order.split(recipe.batch_size)[: len(images) // recipe.batch_size]
    side = recipe.early_side if epoch < 0.75 * recipe.epochs else None
    losses, wrong = 0.0, 0
    for batch in batches:
        truth = labels[batch]
        logits = network(_floats(_views(images[batch], recipe, generator, side)))
        loss = functional.cross_entropy(logits, truth, label_smoothing=recipe.label_smoothing)
        parts["optimizer"].zero_grad()
        loss.backward()
        parts["optimizer"].step()
        parts["schedule"].step()
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), network.parameters(), strict=True):
                mean.lerp_(parameter, 1 - recipe.averaging)
        losses += loss.item()
        wrong += int(torch.count_nonzero(logits.argmax(1) != truth))
    return losses / len(batches), 100 * wrong / (len(batches) * recipe.batch_size)


def _views(
    images: Tensor, recipe: Recipe, generator: torch.Generator, side: int | None = None
) -> Tensor:
    """The images as training sees them."""
    views = augment(images, recipe.padding, generator, side)
    return augmix(views, generator) if recipe.augmix else views


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    weights = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    return torch.optim.SGD(
        [
            {"params": weights, "weight_decay": recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=recipe.peak_rate,
        momentum=recipe.momentum,
        nesterov=True,
    )


def _floats(images: Tensor) -> Tensor:
    return (images.to(torch.float32) / 255).contiguous(memory_format=torch.channels_last)


def _save(checkpoint: Path, parts: dict[str, Any], recipe: Recipe, epochs_done: int) -> None:
    """Atomically: a kill leaves the last checkpoint or the new one."""
    state = {name: part.state_dict() for name, part in parts.items()}
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    partial = checkpoint.with_suffix(".partial")
    torch.save({"recipe": asdict(recipe), "epochs_done": epochs_done, **state}, partial)
    partial.replace(checkpoint)


def _resume(checkpoint: Path, parts: dict[str, Any], recipe: Recipe) -> int:
    """How many epochs are done; the parts are brought to where they were."""
    if not checkpoint.exists():
        return 0
    try:
        state = torch.load(checkpoint, weights_only=True)
    except Exception as error:  # a broken file may break the reader in any way
        reason = f"{type(error).__name__} {error}".splitlines()[0]
        raise ModelError(
            f"{checkpoint} cannot be read ({reason}); remove it to begin anew"
        ) from error
    if Recipe(**state["recipe"]) != recipe:
        raise ValueError(
            f"{checkpoint} was trained by another recipe: {state['recipe']}; "
            f"expected {asdict(recipe)}. Give that recipe, or another checkpoint"
        )
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return int(state["epochs_done"])
