"""The layer that replaces every BatchNorm: a rule says which statistics it normalizes with.

replacement.py puts it into a model; the rules are in rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from realistic_tta.errors import InputError
from realistic_tta.functional.channel_statistics import ChannelStatistics, values_per_channel

from .rules import MeasuredStatistics, StatisticsRule, TrainingStatistics

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_NO_TRAINING = (False, 0.0)  # and no momentum
_DIMENSIONS: dict[type, tuple[int, ...]] = {
    nn.BatchNorm1d: (2, 3),
    nn.BatchNorm2d: (4,),
    nn.BatchNorm3d: (5,),
}


class RuleSlot:
    """The rules of one pass, shared by all layers of a model; None outside a pass.

    One assignment sets or clears the rules of all layers.
    """

    def __init__(self) -> None:
        self.rules: Sequence[StatisticsRule] | None = None


class AdaptiveBatchNorm(nn.Module):
    """A BatchNorm layer whose statistics come from a rule.

        output = (inputs - mean) / sqrt(variance + eps) * weight + bias        (paper, Eq. 1)

    It keeps the layer that it replaces: affine parameters and source statistics stay there, and a
    subclass that does more than normalize (timm's BatchNormAct2d adds an activation) still does.
    Attributes that a model reads from its BatchNorm are answered by that layer.

    layer: the BatchNorm, in eval mode. name: its place in the model, for messages.
    slot, index: where the layer finds its rule.
    """

    layer: Any

    def __init__(self, layer: nn.Module, name: str, slot: RuleSlot, index: int) -> None:
        super().__init__()
        self.layer = layer
        self.name = name
        self.slot, self.index = slot, index
        source = self.layer.running_mean
        self.channels: int = self.layer.num_features if source is None else len(source)
        self.dimensions = _DIMENSIONS.get(type(layer), ())

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalizes with the statistics of the rule; without a rule, as the layer itself does."""
        layer, rules = self._modules["layer"], self.slot.rules  # self.layer is slow
        assert layer is not None
        if rules is None:
            return _run(layer, inputs)
        rule = rules[self.index]
        if rule.min_values:
            self._check(inputs, rule.min_values)
        if isinstance(rule, TrainingStatistics) and isinstance(layer, _BatchNorm):
            return _train(layer, inputs, rule)
        statistics = rule.statistics(inputs)
        if type(layer) in _PLAIN:
            return _normalize(layer, inputs, statistics)
        return _run_with(layer, inputs, statistics)

    @property
    def has_source(self) -> bool:
        """Whether the layer carries statistics from training (track_running_stats)."""
        return self.layer.running_mean is not None

    def source_statistics(self) -> ChannelStatistics:
        """Mean and variance from training, in float32 or better."""
        mean, variance = self.layer.running_mean.detach(), self.layer.running_var.detach()
        dtype = torch.promote_types(mean.dtype, torch.float32)
        return ChannelStatistics(mean.to(dtype), variance.to(dtype))

    def _check(self, inputs: Tensor, min_values: int) -> None:
        """Raises unless the inputs fit the layer and have enough values for a variance."""
        expected = self.dimensions
        if inputs.ndim < 2 or (expected and inputs.ndim not in expected):
            dimensions = " or ".join(map(str, expected)) or "2 or more"
            raise InputError(
                f"{self._got(inputs)}; expected {dimensions} dimensions (image, channel, ...)"
            )
        if inputs.shape[1] != self.channels:
            raise InputError(
                f"{self._got(inputs)}; expected {self.channels} channels in the second dimension"
            )
        if inputs.numel() < min_values * self.channels:
            raise InputError(
                f"{self._got(inputs)}: a single value per channel has no variance. "
                'Give 2 or more images at once, larger images, or use method="realistic"'
            )

    def _got(self, inputs: Tensor) -> str:
        layer_type = type(self.layer).__name__
        return f'layer "{self.name}" ({layer_type}) got an input of shape {tuple(inputs.shape)}'

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)


def _normalize(layer: Any, inputs: Tensor, statistics: ChannelStatistics) -> Tensor:
    """Eq. 1 with the given statistics; half-precision inputs are normalized by float32 ones."""
    mean, variance = statistics
    affine = layer._parameters  # layer.weight is slow
    weight, bias = affine["weight"], affine["bias"]
    dtype = inputs.dtype
    if dtype is not mean.dtype or (weight is not None and dtype is not weight.dtype):
        dtype = torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype
        mean, variance = mean.to(dtype), variance.to(dtype)
        weight, bias = _cast(weight, dtype), _cast(bias, dtype)
    # functional.batch_norm would first check the number of values, as for training.
    cudnn = torch.backends.cudnn.enabled
    return torch.batch_norm(inputs, weight, bias, mean, variance, *_NO_TRAINING, layer.eps, cudnn)


def _train(layer: Any, inputs: Tensor, rule: TrainingStatistics) -> Tensor:
    """Eq. 1 with the inputs' own statistics, as torch's train mode; the rule records them."""
    if type(layer) not in _PLAIN:  # a BatchNorm without running statistics uses the batch's
        rule.statistics(inputs.detach())
        return _run_with(layer, inputs, None)
    dtype = torch.float32 if inputs.dtype.itemsize < torch.float32.itemsize else inputs.dtype
    weight, bias = _cast(layer.weight, dtype), _cast(layer.bias, dtype)
    outputs, mean, inverse_deviation = torch.native_batch_norm(
        inputs, weight, bias, None, None, training=True, momentum=0.0, eps=layer.eps
    )
    measured = MeasuredStatistics(mean, inverse_deviation, layer.eps, values_per_channel(inputs))
    rule.record(measured)
    return outputs


def _run_with(layer: Any, inputs: Tensor, statistics: ChannelStatistics | None) -> Tensor:
    """The layer's own forward, with the given statistics in place of its running ones."""
    source = layer.running_mean, layer.running_var
    dtype = inputs.dtype if source[0] is None else source[0].dtype
    used = (None, None) if statistics is None else statistics
    try:
        layer.running_mean, layer.running_var = (_cast(each, dtype) for each in used)
        return _run(layer, inputs)
    finally:
        layer.running_mean, layer.running_var = source


def _run(layer: Any, inputs: Tensor) -> Tensor:
    outputs: Tensor = layer(inputs)
    return outputs


def _cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return tensor if tensor is None or tensor.dtype == dtype else tensor.to(dtype)
