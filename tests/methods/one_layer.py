"""A single BatchNorm, mixed linearly by hand. For test_alpha_bn.py and test_adapt_bn.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SOURCE_MEAN, SOURCE_VARIANCE = 0.2, 3.0


def one_layer() -> nn.BatchNorm2d:
    """A BatchNorm with the same source statistics in every channel."""
    layer = nn.BatchNorm2d(3).eval()
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.running_mean.fill_(SOURCE_MEAN)
    layer.running_var.fill_(SOURCE_VARIANCE)
    return layer


def linear_mix(batch: Tensor, source_weight: float) -> Tensor:
    """The output of `one_layer` with source and unbiased batch statistics, mixed linearly."""
    variance, mean = torch.var_mean(batch, dim=(0, 2, 3), keepdim=True)
    mean = source_weight * SOURCE_MEAN + (1 - source_weight) * mean
    variance = source_weight * SOURCE_VARIANCE + (1 - source_weight) * variance
    return (batch - mean) / torch.sqrt(variance + 1e-5)
