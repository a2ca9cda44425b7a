"""The method realistic a second time, in float64, sharing no code with the library.

It keeps all images of the stream, in each layer, and loops over them. Slow and plain on purpose.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class StraightLineRealistic:
    """Each image weighs 0.1 ** (age / source batch): its age are the images of later batches."""

    def __init__(self, model: nn.Module, source_batch: int = 128, maximum: float = 0.5) -> None:
        self.model = copy.deepcopy(model).double().eval()
        self.source_batch, self.maximum = source_batch, maximum
        self.layers: list[Any] = [
            module
            for module in self.model.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm)
        ]
        self.images: list[list[tuple[int, Tensor]]] = [[] for _ in self.layers]
        self.source_weights = [1.0] * len(self.layers)
        self.seen = 0  # images, up to the current batch
        for number, layer in enumerate(self.layers):
            layer.forward = partial(self.normalize, number)

    @torch.no_grad()
    def __call__(self, batch: Tensor) -> Tensor:
        self.seen += len(batch)
        outputs: Tensor = self.model(batch.double())
        return outputs

    def normalize(self, number: int, x: Tensor) -> Tensor:
        layer, known = self.layers[number], self.images[number]
        known.extend((self.seen, image.reshape(len(image), -1)) for image in x)
        weights = [0.1 ** ((self.seen - birth) / self.source_batch) for birth, _ in known]
        source_mean, source_variance = layer.running_mean, layer.running_var
        target = self.weighted([image.mean(1) for _, image in known], weights)
        variance = self.weighted(
            [((image - target[:, None]) ** 2).mean(1) for _, image in known], weights
        )
        w = self.target_weight(known, weights, target, layer)
        self.source_weights[number] = 1 - w
        mean = (1 - w) * source_mean + w * target
        mixed = (1 - w) * source_variance + w * variance
        mixed = mixed + w * (1 - w) * (source_mean - target) ** 2  # Eq. 7
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        normal: Tensor = (x - mean.view(shape)) / torch.sqrt(mixed + layer.eps).view(shape)
        if layer.affine:
            normal = normal * layer.weight.view(shape) + layer.bias.view(shape)
        return normal

    def target_weight(
        self, known: list[tuple[int, Tensor]], weights: list[float], target: Tensor, layer: Any
    ) -> float:
        """James and Stein: none of the target where chance explains its distance."""
        effective = sum(weights) ** 2 / sum(weight**2 for weight in weights)
        if len(known) == 1:
            return 0.0
        between = self.weighted([(image.mean(1) - target) ** 2 for _, image in known], weights)
        scale = layer.running_var + 1e-5
        chance = float((between / scale).mean()) / (effective - 1)
        distance = float(((target - layer.running_mean) ** 2 / scale).mean())
        return self.maximum * max(0.0, 1 - chance / distance)

    @staticmethod
    def weighted(values: list[Tensor], weights: list[float]) -> Tensor:
        total = torch.zeros_like(values[0])
        for value, weight in zip(values, weights, strict=True):
            total = total + weight * value
        return total / sum(weights)
