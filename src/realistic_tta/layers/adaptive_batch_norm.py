"""The one layer that stands in for every BatchNorm: a rule says which statistics it uses.

network.py puts it into a network; the rules are in statistics_rules.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from realistic_tta.errors import InputError
from realistic_tta.functional.channel_statistics import ChannelStatistics, values_per_channel

from .statistics_rules import StatisticsRule, Told, TrainingStatistics

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_NO_TRAINING = (False, 0.0)  # and no momentum
_DIMENSIONS: dict[type, tuple[int, ...]] = {
    nn.BatchNorm1d: (2, 3),
    nn.BatchNorm2d: (4,),
    nn.BatchNorm3d: (5,),
}


class AdaptiveBatchNorm(nn.Module):
    """A BatchNorm layer whose statistics come from a rule.

        output = (inputs - mean) / sqrt(variance + eps) * weight + bias        (paper, Eq. 1)

    It keeps the layer it stands for: affine parameters and source statistics stay there, and a
    subclass that does more than normalise (timm's BatchNormAct2d adds an activation) still does.
    Attributes that a network reads off its BatchNorm are answered by that layer.

    layer: the BatchNorm, in eval mode. name: its place in the network, for messages.
    """

    layer: Any

    def __init__(self, layer: nn.Module, name: str) -> None:
        super().__init__()
        self.layer = layer
        self.name = name
        source = self.layer.running_mean
        self.channels: int = self.layer.num_features if source is None else len(source)
        self.dimensions = _DIMENSIONS.get(type(layer), ())
        self.rule: StatisticsRule | None = None
        self.alone = True  # whether a variance has to come from these inputs, no other process's

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalises with what the rule says; without a rule, as the layer itself does."""
        layer, rule = self._modules["layer"], self.rule  # self.layer takes as long as a kernel
        if rule is None:
            return _run(layer, inputs)
        if rule.measures:
            self._check(inputs, rule.least_values)
        if isinstance(rule, TrainingStatistics) and isinstance(layer, _BatchNorm):
            return _train(layer, inputs, rule)
        statistics = rule.statistics(inputs)
        if type(layer) in _PLAIN:
            return _normalize(layer, inputs, statistics)
        if statistics.mean.ndim == 2:
            return _run_with_each(layer, inputs, statistics)
        return _run_with(layer, inputs, statistics)

    def follow(self, rule: StatisticsRule | None) -> None:
        """Sets the rule for the next pass; None leaves the layer to itself."""
        self.__dict__["rule"] = rule  # Module.__setattr__ would cost more than the rule itself

    @property
    def has_source(self) -> bool:
        """Whether the layer carries statistics from training (track_running_stats)."""
        return self.layer.running_mean is not None

    def source_statistics(self) -> ChannelStatistics:
        """Mean and variance from training, in float32 or better."""
        mean, variance = self.layer.running_mean.detach(), self.layer.running_var.detach()
        dtype = torch.promote_types(mean.dtype, torch.float32)
        return ChannelStatistics(mean.to(dtype), variance.to(dtype))

    def _check(self, inputs: Tensor, least_values: int) -> None:
        """Raises unless the inputs fit the layer and hold enough values for a variance."""
        expected = self.dimensions
        if inputs.ndim < 2 or (expected and inputs.ndim not in expected):
            dimensions = " or ".join(map(str, expected)) or "2 or more"
            raise InputError(
                f"{self._came(inputs)}; expected {dimensions} dimensions (image, channel, ...)"
            )
        if inputs.shape[1] != self.channels:
            raise InputError(
                f"{self._came(inputs)}; expected {self.channels} channels, in second place"
            )
        if self.alone and values_per_channel(inputs) < least_values:
            raise InputError(
                f"{self._came(inputs)}: a single value a channel has no variance. "
                'Give 2 or more images at once, larger images, or use method="source"'
            )

    def _came(self, inputs: Tensor) -> str:
        kind = type(self.layer).__name__
        return f'layer "{self.name}" ({kind}) got an input of shape {tuple(inputs.shape)}'

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)


def _normalize(layer: Any, inputs: Tensor, statistics: ChannelStatistics) -> Tensor:
    """Eq. 1 with the given statistics; half inputs are normalised by float32 ones."""
    mean, variance = statistics
    affine = layer._parameters  # noqa: SLF001 - layer.weight takes as long as a kernel
    weight, bias = affine["weight"], affine["bias"]
    dtype = inputs.dtype
    if dtype is not mean.dtype or (weight is not None and dtype is not weight.dtype):
        dtype = torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype
        mean, variance = mean.to(dtype), variance.to(dtype)
        weight, bias = _cast(weight, dtype), _cast(bias, dtype)
    if mean.ndim == 2:  # of each image (replay_rules.py, domain_statistics.py)
        return _normalize_each(inputs, (weight, bias), ChannelStatistics(mean, variance), layer.eps)
    # Not functional.batch_norm, which first asks whether a training had values enough.
    cudnn = torch.backends.cudnn.enabled
    return torch.batch_norm(inputs, weight, bias, mean, variance, *_NO_TRAINING, layer.eps, cudnn)


def _normalize_each(
    inputs: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    statistics: ChannelStatistics,
    eps: float,
) -> Tensor:
    """Eq. 1 with statistics of each image, (image, channel): as one image of very many channels."""
    flat = inputs.reshape(1, -1, *inputs.shape[2:])  # (1, image * channel, ...)
    weight, bias = (None if each is None else each.repeat(len(inputs)) for each in affine)
    mean, variance = (each.flatten() for each in statistics)
    cudnn = torch.backends.cudnn.enabled
    outputs = torch.batch_norm(flat, weight, bias, mean, variance, *_NO_TRAINING, eps, cudnn)
    return outputs.view(inputs.shape)


def _train(layer: Any, inputs: Tensor, rule: TrainingStatistics) -> Tensor:
    """Eq. 1 with the inputs' own statistics, as torch's train mode; the rule is told of them."""
    if type(layer) not in _PLAIN:  # a BatchNorm without running statistics takes the batch's
        rule.statistics(inputs.detach())
        return _run_with(layer, inputs, None)
    dtype = torch.float32 if inputs.dtype.itemsize < torch.float32.itemsize else inputs.dtype
    weight, bias = _cast(layer.weight, dtype), _cast(layer.bias, dtype)
    outputs, mean, inverse_deviation = torch.native_batch_norm(
        inputs, weight, bias, None, None, training=True, momentum=0.0, eps=layer.eps
    )
    rule.tell(Told(mean, inverse_deviation, layer.eps, values_per_channel(inputs)))
    return outputs


def _run_with(layer: Any, inputs: Tensor, statistics: ChannelStatistics | None) -> Tensor:
    """The layer's own forward, the statistics, or none, standing in for its running ones."""
    source = layer.running_mean, layer.running_var
    dtype = inputs.dtype if source[0] is None else source[0].dtype
    used = (None, None) if statistics is None else statistics
    try:
        layer.running_mean, layer.running_var = (_cast(each, dtype) for each in used)
        return _run(layer, inputs)
    finally:
        layer.running_mean, layer.running_var = source


def _run_with_each(layer: Any, inputs: Tensor, statistics: ChannelStatistics) -> Tensor:
    """The same with statistics of each image, (image, channel): one image after the other."""
    each = zip(inputs.split(1), *statistics, strict=True)
    return torch.cat([_run_with(layer, one, ChannelStatistics(*own)) for one, *own in each])


def _run(layer: Any, inputs: Tensor) -> Tensor:
    outputs: Tensor = layer(inputs)
    return outputs


def _cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return tensor if tensor is None or tensor.dtype == dtype else tensor.to(dtype)
