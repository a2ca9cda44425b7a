"""The method realistic a second time, in float64, sharing no code with the library.

It keeps all images of the stream, in each layer, with their weights in the long and in the short
average, and loops over them. Slow and plain on purpose.
"""

from __future__ import annotations

import copy
import statistics
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class Average:
    """The weights of all images of one layer in an average, adding up to 1."""

    def __init__(self, length: float) -> None:
        self.length = length
        self.weights: list[float] = []
        self.total = self.squares = 0.0

    def add(self, images: int) -> None:
        decay = 0.1 ** (images / self.length)
        raw = [weight * self.total * decay for weight in self.weights] + [1.0] * images
        self.total = self.total * decay + images
        self.squares = self.squares * decay**2 + images
        self.weights = [each / self.total for each in raw]

    @property
    def images(self) -> float:
        return self.total**2 / self.squares

    def replace(self, other: Average, part: float) -> None:
        pairs = zip(self.weights, other.weights, strict=True)
        self.weights = [(1 - part) * own + part * theirs for own, theirs in pairs]
        self.total = (1 - part) * self.total + part * other.total
        self.squares = (1 - part) * self.squares + part * other.squares

    def of(self, values: list[Tensor]) -> Tensor:
        return sum(
            (weight * value for weight, value in zip(self.weights, values, strict=True)),
            torch.zeros_like(values[0]),
        )


class StraightLineRealistic:
    """Each image weighs 0.1 ** (age / length): its age are the images of later batches."""

    def __init__(self, model: nn.Module, source_batch: int = 128, maximum: float = 0.5) -> None:
        self.model = copy.deepcopy(model).double().eval()
        self.maximum = maximum
        self.source_batch = source_batch
        self.correlation_time = 1.0
        self.layers: list[Any] = [
            module
            for module in self.model.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm)
        ]
        self.images: list[list[Tensor]] = [[] for _ in self.layers]  # (channel, position) each
        self.long = [Average(source_batch) for _ in self.layers]
        self.short = [Average(source_batch / 8) for _ in self.layers]
        self.source_weights = [1.0] * len(self.layers)
        for number, layer in enumerate(self.layers):
            layer.forward = partial(self.normalize, number)

    @torch.no_grad()
    def __call__(self, batch: Tensor) -> Tensor:
        ratios = [self.ratio(number) if known else None for number, known in enumerate(self.images)]
        used = [ratio for ratio in ratios if ratio is not None]
        median, last = statistics.median_low(used) if used else 0.0, ratios[-1] or 0.0
        threshold = 4 * max(1.0, self.correlation_time)
        self.replaced = 1 - (threshold / median) ** 2 if median > threshold else 0.0
        step = (1 - 0.1 ** (len(batch) / self.source_batch)) * (1 - self.replaced)
        self.correlation_time += step * (last / max(1.0, median) - self.correlation_time)
        self.distance = self.chance = 0.0
        outputs: Tensor = self.model(batch.double())
        return outputs

    def ratio(self, number: int) -> float:
        """How many times further the recent images are from all images than by chance."""
        means = [image.mean(1) for image in self.images[number]]
        long, short = self.long[number], self.short[number]
        past = long.of(means)
        scale = self.layers[number].running_var + 1e-5
        between = long.of([(mean - past) ** 2 for mean in means])
        chance = (float((between / scale).mean()) + 1e-12) / short.images
        distance = float(((short.of(means) - past) ** 2 / scale).mean())
        return 1.5 * distance / chance

    def normalize(self, number: int, x: Tensor) -> Tensor:
        layer, known = self.layers[number], self.images[number]
        long, short = self.long[number], self.short[number]
        if known:
            long.replace(short, self.replaced)
        known.extend(image.reshape(len(image), -1) for image in x)
        long.add(len(x))
        short.add(len(x))
        source_mean, source_variance = layer.running_mean, layer.running_var
        target = long.of([image.mean(1) for image in known])
        variance = long.of([((image - target[:, None]) ** 2).mean(1) for image in known])
        w = self.target_weight(number, target)
        self.source_weights[number] = 1 - w
        mean = (1 - w) * source_mean + w * target
        mixed = (1 - w) * source_variance + w * variance
        mixed = mixed + w * (1 - w) * (source_mean - target) ** 2  # Eq. 7
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        normal: Tensor = (x - mean.view(shape)) / torch.sqrt(mixed + layer.eps).view(shape)
        if layer.affine:
            normal = normal * layer.weight.view(shape) + layer.bias.view(shape)
        return normal

    def target_weight(self, number: int, target: Tensor) -> float:
        """None of the target where chance explains the distance of the layers so far."""
        long, layer, known = self.long[number], self.layers[number], self.images[number]
        if len(known) == 1:
            self.distance += float(
                ((target - layer.running_mean) ** 2 / (layer.running_var + 1e-5)).mean()
            )
            return 0.0
        between = long.of([(image.mean(1) - target) ** 2 for image in known])
        scale = layer.running_var + 1e-5
        correlated = max(1.0, self.correlation_time) ** 2
        self.chance += float((between / scale).mean()) * correlated / min(long.images - 1, 10)
        self.distance += float(((target - layer.running_mean) ** 2 / scale).mean())
        ratio = self.chance / self.distance if self.distance else float("inf")
        return self.maximum * max(0.0, 1 - ratio**2)
