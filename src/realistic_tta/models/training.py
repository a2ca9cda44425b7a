"""Trains a source model with one-cycle SGD on clean images; resumes bit-identically per epoch.

The augmentation does not include the test corruptions: flips and crops, and optionally AugMix. The
result is the exponential moving average of the weights. Its BatchNorm statistics are measured again
on augmented images. Statistics of plain images lack the black borders of the crops and cost a
ResNet-20 two points of error.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import update_bn

from realistic_tta.errors import ModelError, OptionError
from realistic_tta.storage import read_tensors, write_tensors

from .augmix import augmix

MEASURED_IMAGES = 10_000  # for the final BatchNorm statistics


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of the training.

    Attributes:
        batch_size: pass the same number to `adapt` as source_batch_size.
        averaging: decay of the moving average of the weights, per step.
        augmix: mix every image with augmented versions of itself.
        early_side: side of the crops in the first three quarters of the epochs, None for whole
            images. Smaller crops train faster; the last quarter uses the full size.
        bn_momentum: of the running statistics. The result is then the model as training left it.
            None: the result is the average of the weights, with statistics measured at the end.
    """

    epochs: int = 40
    batch_size: int = 128
    peak_rate: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 5e-4  # of weights; biases and BatchNorm have none
    label_smoothing: float = 0.1
    averaging: float = 0.999
    padding: int = 4
    augmix: bool = False
    seed: int = 0
    early_side: int | None = None
    bn_momentum: float | None = None


@dataclass(frozen=True)
class Progress:
    """State after an epoch. The error is in percent, on the training batches."""

    epoch: int
    epochs: int
    loss: float
    error: float


def train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    *,
    checkpoint: Path,
    report: Callable[[Progress], None] = lambda _: None,
) -> nn.Module:
    """Train the model and return it, or its weight average (see `Recipe`), in eval mode.

    Args:
        model: the untrained model.
        images: (image, color, row, column) uint8.
        labels: (image,).
        recipe: hyperparameters.
        checkpoint: file written after every epoch. If it exists, training resumes from it.
        report: called after every epoch.
    """
    steps = len(images) // recipe.batch_size
    if recipe.epochs * steps < 8:
        raise OptionError(
            f"{len(images)} images in batches of {recipe.batch_size} for {recipe.epochs} epochs "
            f"are {recipe.epochs * steps} steps; expected at least 8"
        )
    run = _Run(model.to(memory_format=torch.channels_last), recipe, steps)  # type: ignore[call-overload]
    for epoch in range(run.resume(checkpoint), recipe.epochs):
        loss, error = run.epoch(images, labels, epoch)
        run.save(checkpoint, epoch + 1)
        report(Progress(epoch + 1, recipe.epochs, loss, error))
    if recipe.bn_momentum is not None:
        return run.model.eval()
    generator = torch.Generator().manual_seed(recipe.seed)
    batches = images[:MEASURED_IMAGES].split(recipe.batch_size)
    views = (_to_floats(_augmented(batch, recipe, generator)) for batch in batches)
    update_bn(views, run.average)
    return run.average.eval()


def augment(
    images: Tensor, padding: int, generator: torch.Generator, side: int | None = None
) -> Tensor:
    """Return random square crops, each flipped horizontally with probability 1/2.

    Crops may exceed the image by `padding` pixels, which are black. side: of the crops; None for
    the side of the image.
    """
    count, _, whole, _ = images.shape
    side = side or whole
    padded = functional.pad(images, (padding,) * 4)
    flips = torch.rand(count, generator=generator) < 0.5
    padded = torch.where(flips[:, None, None, None], padded.flip(3), padded)
    positions = whole + 2 * padding - side + 1
    corners = torch.randint(positions, (2, count), generator=generator)
    rows = corners[0][:, None] + torch.arange(side)  # (image, row)
    columns = corners[1][:, None] + torch.arange(side)  # (image, column)
    image = torch.arange(count)[:, None, None]
    picked = padded[image, :, rows[:, :, None], columns[:, None, :]]  # (image, row, column, color)
    return picked.permute(0, 3, 1, 2)


class _Run:
    """A training in progress: the model, the average of its weights, optimizer and schedule."""

    def __init__(self, model: nn.Module, recipe: Recipe, steps: int) -> None:
        self.model, self.recipe, self.steps = model, recipe, steps  # steps: per epoch
        if recipe.bn_momentum is not None:
            for layer in model.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.momentum = recipe.bn_momentum
        self.average = copy.deepcopy(model)
        self.optimizer = _optimizer(model, recipe)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, recipe.peak_rate, total_steps=recipe.epochs * steps, pct_start=0.25
        )

    def epoch(self, images: Tensor, labels: Tensor, epoch: int) -> tuple[float, float]:
        """Train for one epoch. Returns the mean loss and the error in percent."""
        recipe = self.recipe
        self.model.train()
        generator = torch.Generator().manual_seed(recipe.seed * 100_003 + epoch)
        order = torch.randperm(len(images), generator=generator)
        side = recipe.early_side if epoch < 0.75 * recipe.epochs else None
        losses, wrong = 0.0, 0
        for batch in order.split(recipe.batch_size)[: self.steps]:
            truth = labels[batch]
            logits = self.model(_to_floats(_augmented(images[batch], recipe, generator, side)))
            loss = functional.cross_entropy(logits, truth, label_smoothing=recipe.label_smoothing)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            with torch.no_grad():
                pairs = zip(self.average.parameters(), self.model.parameters(), strict=True)
                for mean, parameter in pairs:
                    mean.lerp_(parameter, 1 - recipe.averaging)
            losses += loss.item()
            wrong += int(torch.count_nonzero(logits.argmax(1) != truth))
        return losses / self.steps, 100 * wrong / (self.steps * recipe.batch_size)

    def save(self, checkpoint: Path, epochs_done: int) -> None:
        """Write everything that the remaining epochs depend on, atomically."""
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        optimizer = self.optimizer.state_dict()
        tensors = {
            **_prefixed("model", self.model.state_dict()),
            **_prefixed("average", self.average.state_dict()),
            **_prefixed(
                "momentum",
                {str(key): held["momentum_buffer"] for key, held in optimizer["state"].items()},
            ),
        }
        metadata = {
            "recipe": asdict(self.recipe),
            "epochs_done": epochs_done,
            "optimizer": optimizer["param_groups"],
            "schedule": self.schedule.state_dict(),
        }
        words = {name: json.dumps(value) for name, value in metadata.items()}
        write_tensors(checkpoint, tensors, words, kind="training")

    def resume(self, checkpoint: Path) -> int:
        """Restore the checkpoint if there is one. Returns the number of epochs done."""
        if not checkpoint.exists():
            return 0
        tensors, words = read_tensors(checkpoint, kind="training")
        metadata = {name: json.loads(value) for name, value in words.items()}
        if metadata["recipe"] != asdict(self.recipe):
            raise OptionError(
                f"{checkpoint} was trained with another recipe: {metadata['recipe']}; expected "
                f"{asdict(self.recipe)}. Use that recipe or another checkpoint"
            )
        momentum = _with_prefix("momentum", tensors)
        state = {int(key): {"momentum_buffer": value} for key, value in momentum.items()}
        try:
            self.model.load_state_dict(_with_prefix("model", tensors))
            self.average.load_state_dict(_with_prefix("average", tensors))
            groups = metadata["optimizer"]
            self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                f"{checkpoint} belongs to another architecture ({error}). Use another checkpoint"
            ) from error
        self.schedule.load_state_dict(metadata["schedule"])
        return int(metadata["epochs_done"])


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the tensors whose name starts with the prefix, without it."""
    start = f"{prefix}."
    found = {name: tensor for name, tensor in tensors.items() if name.startswith(start)}
    return {name.removeprefix(start): tensor for name, tensor in found.items()}


def _augmented(
    images: Tensor, recipe: Recipe, generator: torch.Generator, side: int | None = None
) -> Tensor:
    """Return random views of the images, as used in training."""
    views = augment(images, recipe.padding, generator, side)
    return augmix(views, generator) if recipe.augmix else views


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.SGD(
        [
            {"params": weights, "weight_decay": recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=recipe.peak_rate,
        momentum=recipe.momentum,
        nesterov=True,
    )


def _to_floats(images: Tensor) -> Tensor:
    return (images.to(torch.float32) / 255).contiguous(memory_format=torch.channels_last)
