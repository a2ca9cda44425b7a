"""The part of the state that all methods with BatchNorm statistics share.

target_mean, target_variance: statistics of the target, of all layers, (all channels,).
source_weight: the weight of the source in the last prediction, (layer,); 1 in unused layers.
batches: the number of batches, ().
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.rectification import divergence
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.replacement import other_normalizations
from realistic_tta.layers.rules import StatisticsRule

from .adapted_model import State
from .report import LayerReport, Report, SkippedLayer


def initial_target(layers: AdaptiveLayers, *, from_source: bool = False) -> State:
    """The state before the first batch: mean 0 and variance 1, or the source statistics."""
    mean, variance = layers.source
    start = layers.source if from_source else (torch.zeros_like(mean), torch.ones_like(variance))
    return {
        "target_mean": start[0].clone(),
        "target_variance": start[1].clone(),
        "source_weight": mean.new_ones(len(layers)),
        "batches": torch.zeros((), dtype=torch.int64, device=mean.device),
    }


def target_of(state: State) -> ChannelStatistics:
    """The target statistics of all layers."""
    return ChannelStatistics(state["target_mean"], state["target_variance"])


def target_after(
    layers: AdaptiveLayers,
    rules: Sequence[StatisticsRule],
    before: State,
    source_weight: float | Tensor,
    target: ChannelStatistics | None = None,
) -> State:
    """The state after a pass: what its layers measured, and the weight that the source had.

    target: the statistics of all layers, if the method has them already.
    """
    if target is None:
        target = layers.collect_target(rules, target_of(before))
    layers.check_finite(target)
    weight = torch.as_tensor(source_weight, device=before["source_weight"].device)
    weight = weight.expand_as(before["source_weight"]).to(before["source_weight"])
    return {
        "target_mean": target.mean,
        "target_variance": target.variance,
        "source_weight": layers.merge_where_used(rules, weight, before["source_weight"]),
    }


def freeze_target(
    model: nn.Module,
    layers: AdaptiveLayers,
    state: State,
    combine: Callable[[ChannelStatistics, ChannelStatistics, Tensor], ChannelStatistics],
) -> nn.Module:
    """A plain copy of the original model with the statistics of the last prediction.

    combine: `interpolate` or `mix`, as the method combines source and target.
    """
    weight = layers.per_channel(state["source_weight"])
    return layers.freeze(model, combine(layers.source, target_of(state), weight))


def target_report(
    method: str,
    model: nn.Module,
    layers: AdaptiveLayers,
    state: State,
    *,
    trained: Sequence[str] = (),
    used: Sequence[bool] | None = None,
) -> Report:
    """Every adapted layer with its divergence and source weight; every skipped one.

    used: which layers a batch has passed through; by default those whose source weight is below 1.
    """
    divergences = divergence(layers.source, target_of(state), layers.channels).tolist()
    weights = state["source_weight"].tolist()
    used = [weight < 1 for weight in weights] if used is None else used
    reports = [
        LayerReport(
            layer.name,
            type(layer.layer).__name__,
            layer.channels,
            distance if is_used and layer.has_source else None,
            weight if is_used else None,
        )
        for layer, distance, weight, is_used in zip(
            layers.layers, divergences, weights, used, strict=True
        )
    ]
    trained_layers = {name.rpartition(".")[0] for name in trained}
    skipped = tuple(
        SkippedLayer(name, type(module).__name__, reason)
        for name, module, reason in other_normalizations(model)
        if name not in trained_layers
    )
    return Report(method, int(state["batches"]), tuple(reports), skipped, tuple(trained))
