"""All adaptive BatchNorm layers of one model, and their source statistics in flat tensors.

The statistics of all layers are concatenated, one layer after another, so that an operation on all
layers is one operation on a flat tensor. Methods hold one `AdaptiveLayers` each.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn

from realistic_tta.errors import ModelError, NonFiniteError
from realistic_tta.functional.channel_statistics import ChannelStatistics

from .adaptive_batch_norm import AdaptiveBatchNorm, RuleSlot
from .replacement import describe_missing, replace_batch_norms, restore_batch_norms
from .rules import StatisticsRule, used_layers


class AdaptiveLayers(nn.Module):
    """The adaptive layers of a model. Make them with `AdaptiveLayers.replace`."""

    source_mean: Tensor
    source_variance: Tensor
    channels: Tensor
    layer_of_channel: Tensor

    @classmethod
    def replace(
        cls, model: nn.Module, method: str, *, required: bool = True, needs_source: bool = True
    ) -> tuple[nn.Module, Self]:
        """Replaces the BatchNorms of a model in place; returns the model and its layers.

        The model returned is another one only if the model itself is a BatchNorm.

        method: the name for messages. required: raise if there is no BatchNorm.
        needs_source: raise if a layer has no statistics from training.
        """
        slot = RuleSlot()
        root, layers = replace_batch_norms(model, slot)
        if required and not layers:
            raise ModelError(
                f"{describe_missing(model)}. {method} adapts BatchNorm statistics; "
                'method="source" takes this model, and so may "lame", "tent", "eta" and "sar"'
            )
        for layer in layers:
            if needs_source and not layer.has_source:
                raise ModelError(
                    f'layer "{layer.name}" ({type(layer.layer).__name__}) has '
                    f"track_running_stats=False, so no source statistics, which {method} needs; "
                    'use method="tbn" or method="tema"'
                )
        return root, cls(layers, slot, device_of(model))

    def __init__(
        self, layers: list[AdaptiveBatchNorm], slot: RuleSlot, device: torch.device
    ) -> None:
        super().__init__()
        self.layers, self.slot = layers, slot
        self.sizes = [layer.channels for layer in self.layers]
        source = self._source_statistics(device)
        if broken := self._first_not_finite(source):
            raise ModelError(
                f'layer "{broken.name}" has NaN or Inf in its source statistics: '
                "the checkpoint is broken"
            )
        channels = torch.tensor(self.sizes, device=device, dtype=torch.int64)
        index = torch.arange(len(self.sizes), device=device)
        layer_of_channel = index.repeat_interleave(channels, output_size=sum(self.sizes))
        self.register_buffer("source_mean", source.mean)
        self.register_buffer("source_variance", source.variance)
        self.register_buffer("channels", channels, persistent=False)
        self.register_buffer("layer_of_channel", layer_of_channel, persistent=False)

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def source(self) -> ChannelStatistics:
        """The source statistics of all layers, (all channels,)."""
        return ChannelStatistics(self.source_mean, self.source_variance)

    def split(self, statistics: ChannelStatistics) -> list[ChannelStatistics]:
        """Statistics of all layers, split by layer; views, not copies."""
        means, variances = (statistic.split(self.sizes) for statistic in statistics)
        return list(map(ChannelStatistics, means, variances))

    def per_channel(self, per_layer: Tensor) -> Tensor:
        """One number per layer, repeated for each of its channels."""
        return per_layer[self.layer_of_channel]

    @contextmanager
    def following(self, rules: Sequence[StatisticsRule]) -> Iterator[None]:
        """Each layer follows its rule while the context lasts."""
        try:
            try:
                self.slot.rules = rules
                yield
            finally:
                self.slot.rules = None
        finally:
            self.slot.rules = None  # a signal handler may have raised on the way

    def collect_target(
        self, rules: Sequence[StatisticsRule], before: ChannelStatistics
    ) -> ChannelStatistics:
        """The target statistics of all layers after a pass; unchanged in layers not used."""
        after = [rule.target for rule in rules]
        if not after:  # a model without BatchNorm
            return before
        if any(statistics is None for statistics in after):
            after = [new or old for new, old in zip(after, self.split(before), strict=True)]
        means = [statistics.mean for statistics in after if statistics is not None]
        variances = [statistics.variance for statistics in after if statistics is not None]
        return ChannelStatistics(torch.cat(means), torch.cat(variances))

    def merge_where_used(
        self, rules: Sequence[StatisticsRule], new: Tensor, before: Tensor
    ) -> Tensor:
        """One number per layer: the new one for layers that a pass used, the old one for others."""
        used = used_layers(rules)
        if used is None:
            return new
        merged = before.clone()
        merged[used] = new[used]
        return merged

    def check_finite(self, target: ChannelStatistics) -> None:
        """Raises a NonFiniteError that names the first layer with NaN or Inf."""
        if overflowed := self._first_not_finite(target):
            raise NonFiniteError(
                f'layer "{overflowed.name}" measured NaN or Inf, though the images are finite: '
                "values overflow inside the model. Check the scale of the images, or use a wider "
                "dtype. Nothing was changed"
            )

    def freeze(self, model: nn.Module, statistics: ChannelStatistics) -> nn.Module:
        """A copy of the model with its own BatchNorms, which hold the given statistics."""
        for layer in self.layers:
            if not layer.has_source:
                raise ModelError(
                    f'layer "{layer.name}" has track_running_stats=False: a plain copy of it '
                    "cannot hold statistics, so this model cannot be frozen"
                )
        adaptive = copy.deepcopy(model)
        layers = [module for module in adaptive.modules() if isinstance(module, AdaptiveBatchNorm)]
        for layer, (mean, variance) in zip(layers, self.split(statistics), strict=True):
            layer.layer.running_mean.copy_(mean)
            layer.layer.running_var.copy_(variance)
            if not torch.isfinite(layer.layer.running_var).all():
                raise ModelError(
                    f'the variance of layer "{layer.name}" does not fit the model\'s '
                    f"{layer.layer.running_var.dtype}; freeze adapted.float() instead"
                )
        return restore_batch_norms(adaptive)

    def _source_statistics(self, device: torch.device) -> ChannelStatistics:
        """The source statistics of all layers; 0 and 1 for layers without."""
        parts = [ChannelStatistics(*torch.zeros(2, 0, dtype=torch.float32, device=device))]
        for layer in self.layers:
            if layer.has_source:
                parts.append(layer.source_statistics())
            else:
                mean = torch.zeros(layer.channels, dtype=torch.float32, device=device)
                parts.append(ChannelStatistics(mean, torch.ones_like(mean)))
        return ChannelStatistics(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _first_not_finite(self, statistics: ChannelStatistics) -> AdaptiveBatchNorm | None:
        if statistics.mean.is_meta or torch.compiler.is_compiling():  # has no values to look at
            return None
        if math.isfinite((statistics.mean.sum() + statistics.variance.sum()).item()):
            return None
        for layer, (mean, variance) in zip(self.layers, self.split(statistics), strict=True):
            if not (torch.isfinite(mean).all() and torch.isfinite(variance).all()):
                return layer
        return None  # only the sum overflows

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        """Follows `.to`, but keeps the statistics in float32 or better."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        keep_precision(self, before)
        return self


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's first parameter or buffer; the CPU if it has none."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    return next((each.device for each in tensors), torch.device("cpu"))


def keep_precision(module: nn.Module, before: Mapping[str, Tensor | None]) -> None:
    """Undoes the conversion of a module's own buffers to less than float32; devices follow."""
    for name, after in module._buffers.items():
        old = before[name]
        if after is None or old is None or not after.is_floating_point():
            continue
        if after.dtype.itemsize < torch.float32.itemsize:
            module._buffers[name] = old.to(after.device)
