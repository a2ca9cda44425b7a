"""What the methods that replace BatchNorm statistics share: the layers, and what is known of them.

batch_norm.py has the methods of one pass, rectified_tema.py the one of two. The statistics of all
layers lie in flat tensors, one layer after another, so that what concerns the whole network is one
operation. Nothing is stored until a batch has been predicted.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from realistic_tta.errors import ModelError, NonFiniteError, SettingError
from realistic_tta.functional.channel_statistics import ChannelStatistics, interpolate
from realistic_tta.functional.rectification import divergence
from realistic_tta.layers.adaptive_batch_norm import AdaptiveBatchNorm
from realistic_tta.layers.network import (
    describe_missing,
    other_normalizations,
    replace_batch_norms,
    restore_batch_norms,
)
from realistic_tta.layers.replicas import Replicas
from realistic_tta.layers.statistics_rules import StatisticsRule, reached, share

from .base import AdaptedModel
from .batch import Batch
from .report import LayerReport, Report, SkippedLayer


class BatchNormMethod(AdaptedModel):
    """A method that says, for each layer and batch, which statistics to normalise with.

    Buffers, all layers one after another:
    source_mean, source_variance: from training, (all channels,).
    target_mean, target_variance: measured so far, (all channels,).
    source_weight: what the source weighed in the last prediction, (layer,); 1 where no batch came.
    """

    needs_batch_norm: ClassVar[bool] = True
    needs_source: ClassVar[bool] = True
    shares_trust: ClassVar[bool] = False  # whether robust=True, too, can be that of many processes
    combine: ClassVar[Callable[..., ChannelStatistics]] = staticmethod(interpolate)
    source_mean: Tensor
    source_variance: Tensor
    target_mean: Tensor
    target_variance: Tensor
    source_weight: Tensor
    channels: Tensor
    layer_of_channel: Tensor

    def __init__(self, network: nn.Module, settings: Any) -> None:
        super().__init__(network, settings)
        self.network, self.layers = replace_batch_norms(self.network)
        self._check_layers()
        self._cut: dict[str, list[ChannelStatistics]] = {}
        self._copied: ChannelStatistics | None = None
        self.sizes = [layer.channels for layer in self.layers]
        source = self._source_statistics()
        if broken := self._first_not_finite(source):
            raise ModelError(
                f'layer "{broken.name}" carries NaN or Inf from training: the checkpoint is broken'
            )
        self.register_buffer("source_mean", source.mean)
        self.register_buffer("source_variance", source.variance)
        start = self.start()
        self.register_buffer("target_mean", start.mean.clone())
        self.register_buffer("target_variance", start.variance.clone())
        self.register_buffer("source_weight", source.mean.new_ones(len(self.layers)))
        channels = torch.tensor(self.sizes, device=source.mean.device, dtype=torch.int64)
        places = torch.arange(len(self.sizes), device=source.mean.device)
        layer_of_channel = places.repeat_interleave(channels, output_size=sum(self.sizes))
        self.register_buffer("channels", channels, persistent=False)
        self.register_buffer("layer_of_channel", layer_of_channel, persistent=False)

    @property
    def source(self) -> ChannelStatistics:
        """Statistics from training, of all layers."""
        return ChannelStatistics(self.source_mean, self.source_variance)

    @property
    def target(self) -> ChannelStatistics:
        """Statistics measured on the stream, of all layers."""
        return ChannelStatistics(self.target_mean, self.target_variance)

    @property
    def robust(self) -> bool:
        """Whether images far from the source count for less; for methods that have the setting."""
        return bool(getattr(self.settings, "robust", False))

    @property
    def used(self) -> ChannelStatistics:
        """Statistics that the last batch was normalised with, of all layers."""
        return self.combine(self.source, self.target, self.by_channel(self.source_weight))

    def start(self) -> ChannelStatistics:
        """Target statistics before the first batch: mean 0 and variance 1, as a new BatchNorm's."""
        return ChannelStatistics(
            torch.zeros_like(self.source_mean), torch.ones_like(self.source_variance)
        )

    def by_layer(self, statistics: ChannelStatistics) -> list[ChannelStatistics]:
        """Statistics of all layers, cut into those of each; views, not copies."""
        means, variances = (statistic.split(self.sizes) for statistic in statistics)
        return [ChannelStatistics(*pair) for pair in zip(means, variances, strict=True)]

    def kept_by_layer(self, name: str, statistics: ChannelStatistics) -> list[ChannelStatistics]:
        """`by_layer` of what stays in its place from batch to batch: cut once."""
        if torch.compiler.is_compiling():
            return self.by_layer(statistics)
        cut = self._cut.get(name)
        if cut is None or cut[0].mean.data_ptr() != statistics.mean.data_ptr():  # moved, or copied
            cut = self._cut[name] = self.by_layer(statistics)
        return cut

    def carry_on(self) -> tuple[ChannelStatistics, list[ChannelStatistics]]:
        """A copy of the target statistics that a pass may change, whole and cut by layer."""
        target = self.target
        if torch.compiler.is_compiling():
            copied = ChannelStatistics(target.mean.clone(), target.variance.clone())
            return copied, self.by_layer(copied)
        if self._copied is None or not _alike(self._copied.mean, target.mean):
            with torch.inference_mode(mode=False):  # to be written to in any mode
                self._copied = ChannelStatistics(*map(torch.empty_like, target))
        torch._foreach_copy_(self._copied, target)
        return self._copied, self.kept_by_layer("copied", self._copied)

    def by_channel(self, per_layer: Tensor) -> Tensor:
        """One number a layer, repeated for each of its channels."""
        return per_layer[self.layer_of_channel]

    def run_with(self, batch: Batch, rules: Sequence[StatisticsRule]) -> Any:
        """One pass of the network, each layer following its rule."""
        if self.replicas is not None:
            share(rules, self.replicas)
        for layer, rule in zip(self.layers, rules, strict=True):
            layer.follow(rule)
        try:
            return self.run(batch)
        finally:
            for layer in self.layers:
                layer.follow(None)

    def share_with(self, replicas: Replicas) -> None:
        """As every method; a layer may then measure less than a variance takes."""
        if self.robust and not self.shares_trust:
            raise SettingError(
                "robust=True and sync cannot go together; leave one of them out, or use "
                'method="realistic", which takes both'
            )
        super().share_with(replicas)
        for layer in self.layers:
            layer.alone = False

    def measured(
        self, rules: Sequence[StatisticsRule], before: ChannelStatistics | None = None
    ) -> ChannelStatistics:
        """Target statistics of all layers after a pass; as before in layers it did not reach."""
        before = before or self.target
        after = [rule.target for rule in rules]
        if not after:  # a network without BatchNorm
            return before
        if any(statistics is None for statistics in after):
            after = [new or old for new, old in zip(after, self.by_layer(before), strict=True)]
        means = [statistics.mean for statistics in after if statistics is not None]
        variances = [statistics.variance for statistics in after if statistics is not None]
        target = ChannelStatistics(torch.cat(means), torch.cat(variances))
        self.check_finite(target)
        return target

    def source_weight_after(self, rules: Sequence[StatisticsRule], weight: float = 0.0) -> Tensor:
        """What the source weighs, changed in the layers that a pass went through."""
        layers = reached(rules)
        if layers is None:
            return torch.full_like(self.source_weight, weight)
        source_weight = self.source_weight.clone()
        source_weight[layers] = weight
        return source_weight

    def check_finite(self, target: ChannelStatistics) -> None:
        """Raises where a layer measured NaN or Inf, and says which."""
        if overflowed := self._first_not_finite(target):
            raise NonFiniteError(
                f'layer "{overflowed.name}" measured NaN or Inf, though the images are finite: '
                "values overflow inside the network. Check the scale of the images, or use a wider "
                "type. No statistic was changed"
            )

    def reset(self) -> None:
        """Forgets everything seen: the next batch is predicted as if it were the first."""
        start = self.start()
        self.target_mean.copy_(start.mean)
        self.target_variance.copy_(start.variance)
        self.source_weight.fill_(1)
        self.step.zero_()

    def freeze(self) -> nn.Module:
        """A plain copy of the original network; its buffers hold what the method would now use.

        Before the first batch, and in layers that no batch has reached, that is the source's.
        """
        for layer in self.layers:
            if not layer.has_source:
                raise ModelError(
                    f'layer "{layer.name}" has track_running_stats=False: a plain copy of it has '
                    "nowhere to hold statistics, so this network cannot be frozen"
                )
        adaptive = copy.deepcopy(self.network)
        layers = [module for module in adaptive.modules() if isinstance(module, AdaptiveBatchNorm)]
        for layer, statistics in zip(layers, self.by_layer(self.used), strict=True):
            layer.layer.running_mean.copy_(statistics.mean)
            layer.layer.running_var.copy_(statistics.variance)
            if not torch.isfinite(layer.layer.running_var).all():
                raise ModelError(
                    f'the variance of layer "{layer.name}" does not fit the network\'s '
                    f"{layer.layer.running_var.dtype}; freeze adapted.float() instead"
                )
        return restore_batch_norms(adaptive)

    def report(self) -> Report:
        """Each layer with its divergence and source weight; each left alone with the reason."""
        divergences = divergence(self.source, self.target, self.channels).tolist()
        weights = self.source_weight.tolist()
        layers = []
        for layer, gap, weight in zip(self.layers, divergences, weights, strict=True):
            reached = weight < 1
            layers.append(
                LayerReport(
                    layer.name,
                    type(layer.layer).__name__,
                    layer.channels,
                    gap if reached and layer.has_source else None,
                    weight if reached else None,
                )
            )
        left = [
            SkippedLayer(name, type(module).__name__, reason)
            for name, module, reason in other_normalizations(self.network)
        ]
        return Report(self.name, int(self.step), tuple(layers), tuple(left))

    def _check_layers(self) -> None:
        if not self.layers and self.needs_batch_norm:
            raise ModelError(
                f"{describe_missing(self.network)}. {self.name} works on BatchNorm statistics; "
                'method="source" takes this network, and so may "lame", "tent", "eta" and "sar"'
            )
        for layer in self.layers:
            if (self.needs_source or self.robust) and not layer.has_source:
                needs = "robust=True" if self.robust else self.name
                advice = "" if self.needs_source else ", without robust"
                raise ModelError(
                    f'layer "{layer.name}" ({type(layer.layer).__name__}) has '
                    f"track_running_stats=False, so no source statistics, which {needs} needs; "
                    f'use method="tbn" or method="tema"{advice}'
                )

    def _source_statistics(self) -> ChannelStatistics:
        """Those of all layers; 0 and 1 stand in where a layer has none."""
        if not self.layers:
            return ChannelStatistics(*torch.zeros(2, 0, device=self.step.device).unbind())
        means, variances = [], []
        for layer in self.layers:
            if layer.has_source:
                mean, variance = layer.source_statistics()
            else:
                mean = torch.zeros(layer.channels, dtype=torch.float32, device=self.step.device)
                variance = torch.ones_like(mean)
            means.append(mean)
            variances.append(variance)
        return ChannelStatistics(torch.cat(means), torch.cat(variances))

    def _first_not_finite(self, statistics: ChannelStatistics) -> AdaptiveBatchNorm | None:
        if statistics.mean.is_meta or torch.compiler.is_compiling():  # cannot be looked at
            return None
        if math.isfinite((statistics.mean.sum() + statistics.variance.sum()).item()):
            return None
        for layer, (mean, variance) in zip(self.layers, self.by_layer(statistics), strict=True):
            if not (torch.isfinite(mean).all() and torch.isfinite(variance).all()):
                return layer
        return None  # each is finite, only their sum is not


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and one.dtype == other.dtype
