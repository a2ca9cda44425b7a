"""Algorithm 1 a second time, in float64, sharing no code with the library.

Written from the paper: Eq. 2 as a sum, full covariance matrices, plain formulas, one layer at a
time. Slow and plain on purpose.
"""

from __future__ import annotations

import copy
from functools import partial
from math import comb, floor, log
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence


def diversity(classes: int, samples: int) -> float:
    whole = comb(samples + classes - 1, classes - 1)
    ways = (k * comb(samples - 1, k - 1) * comb(classes, k) for k in range(1, classes + 1))
    return sum(ways) / whole


def best_momentum(classes: int, source_batch: int, batch: int) -> float:
    found = []
    for momentum in (1.0, 0.1, 0.01, 0.001):
        scope = batch if momentum == 1 else floor(log(0.1, 1 - momentum)) * batch
        mismatch = abs(diversity(classes, source_batch) / diversity(classes, scope) - 1)
        found.append((mismatch + 0.01 * scope / source_batch, -momentum))
    return -min(found)[1]


class StraightLine:
    def __init__(self, model: nn.Module, classes: int, source_batch: int) -> None:
        self.model = copy.deepcopy(model).double().eval()
        self.classes, self.source_batch = classes, source_batch
        self.layers: list[Any] = [
            module
            for module in self.model.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm)
        ]
        self.means = [torch.zeros(layer.num_features).double() for layer in self.layers]
        self.variances = [torch.ones(layer.num_features).double() for layer in self.layers]
        self.prior = [0.0] * len(self.layers)
        for number, layer in enumerate(self.layers):
            layer.forward = partial(self.normalize, number)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        self.momentum = best_momentum(self.classes, self.source_batch, len(images))
        self.measuring, self.weights = True, self.prior
        self.model(images.double())
        divergences = [self.divergence(number) for number in range(len(self.layers))]
        average = sum(divergences) / len(divergences)
        deviation = (sum((d - average) ** 2 for d in divergences) / len(divergences)) ** 0.5
        scores = [(d - average) / deviation if deviation else 0.0 for d in divergences]
        relative = [0.5 * (min(max(score, -1), 1) + 1) / 2 for score in scores]
        self.measuring, self.weights = False, relative
        logits: Tensor = self.model(images.double())
        pairs = zip(relative, self.prior, strict=True)
        self.prior = [0.1 * now + 0.9 * before for now, before in pairs]
        return logits

    def normalize(self, number: int, x: Tensor) -> Tensor:
        layer, m, a = self.layers[number], self.momentum, self.weights[number]
        rows = x.transpose(0, 1).flatten(1)  # (channel, value)
        if self.measuring:
            self.means[number] = m * rows.mean(1) + (1 - m) * self.means[number]
            self.variances[number] = m * rows.var(1) + (1 - m) * self.variances[number]
        mean_s, var_s = layer.running_mean, layer.running_var
        mean_t, var_t = self.means[number], self.variances[number]
        mean = a * mean_s + (1 - a) * mean_t
        var = a * var_s + (1 - a) * var_t + a * (1 - a) * (mean_s - mean_t) ** 2
        normal = (rows - mean[:, None]) / torch.sqrt(var + layer.eps)[:, None]
        if layer.affine:
            normal = normal * layer.weight[:, None] + layer.bias[:, None]
        shape = (x.shape[1], x.shape[0], *x.shape[2:])
        return torch.transpose(normal.reshape(shape), 0, 1)

    def divergence(self, number: int) -> float:
        layer = self.layers[number]
        source = MultivariateNormal(layer.running_mean, torch.diag(layer.running_var + 1e-5))
        target = MultivariateNormal(self.means[number], torch.diag(self.variances[number] + 1e-5))
        both = kl_divergence(source, target) + kl_divergence(target, source)
        return float(both / 2)
