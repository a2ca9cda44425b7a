"""Many small batches in one large forward, as if they had come one by one: for benchmarks.

The methods that do not train need of the past only a moving average in each layer, and that can be
had for all batches at once (statistics/batch_by_batch.py). State and predictions after a replay are
those of the calls it stands for, up to the rounding of larger tensors. replayable.py says where it
can be had; benchmark/replay.py uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from realistic_tta.errors import InputError, ModelError
from realistic_tta.functional.batch_by_batch import (
    Batches,
    average_each,
    average_weights,
    source_weights_each,
)
from realistic_tta.functional.channel_statistics import ChannelStatistics, mix
from realistic_tta.functional.rectification import PRIOR_MOMENTUM
from realistic_tta.layers.replay_rules import (
    EachAverage,
    EachBatch,
    EachBatchAlone,
    EachInterpolated,
    EachRectified,
    of_images,
)
from realistic_tta.layers.statistics_rules import FixedStatistics

from .base import AdaptedModel
from .batch import Batch
from .batch_norm import TBN, AdaptBN, AlphaBN, LinearMix, Tema
from .batch_norm_method import BatchNormMethod
from .rectified_tema import RectifiedTema
from .source import Source

STANDS_STILL = 1e-6  # a change of the prior, which goes from 0 to 0.5


class Replayed(NamedTuple):
    """outputs: of all images. sweeps: how many measuring passes it took, 0 where none is needed."""

    outputs: Tensor
    sweeps: int


def replay(adapted: AdaptedModel, images: Tensor, sizes: Sequence[int]) -> Replayed:
    """Predicts the images as batches of these sizes, one after another, in one forward.

    Only for what `why_not` has nothing against; not all that it tries is checked again here. After
    an error the state is as it was.
    """
    if sum(sizes) != len(images) or min(sizes, default=0) < 1:
        raise InputError(f"batches of {list(sizes)} images; expected {len(images)} in all")
    if type(adapted) not in REPLAYS:
        raise ModelError(f"{adapted.name} cannot be replayed; expected one of {names()}")
    batch = Batch.of(adapted.network, (images,), {})
    with torch.no_grad():
        return REPLAYS[type(adapted)](adapted, batch, sizes)


def _source(adapted: Source, batch: Batch, sizes: Sequence[int]) -> Replayed:
    outputs = adapted.run(batch)
    adapted.remember(len(sizes))
    return Replayed(outputs, 0)


def _tbn(adapted: TBN, batch: Batch, sizes: Sequence[int]) -> Replayed:
    batches = Batches.of(sizes, adapted.target_mean)
    rules = [EachBatchAlone(batches) for _ in adapted.layers]
    outputs, target = _measured(adapted, batch, rules)
    _remember(adapted, target, torch.zeros_like(adapted.source_weight))
    return Replayed(outputs, 1)


def _linear_mix(adapted: LinearMix, batch: Batch, sizes: Sequence[int]) -> Replayed:
    batches = Batches.of(sizes, adapted.target_mean)
    weights = adapted.source_mean.new_tensor([[adapted.weight_of_source(size)] for size in sizes])
    source = adapted.by_layer(adapted.source)
    rules = [EachInterpolated(batches, of_layer, weights) for of_layer in source]
    outputs, target = _measured(adapted, batch, rules)
    _remember(adapted, target, weights[-1].expand_as(adapted.source_weight))
    return Replayed(outputs, 1)


def _tema(adapted: Tema, batch: Batch, sizes: Sequence[int]) -> Replayed:
    batches = Batches.of(sizes, adapted.target_mean)
    momenta = [adapted.settings.momentum_for(size) for size in sizes]
    weights = average_weights(momenta, adapted.target_mean)
    rules = [EachAverage(batches, start, weights) for start in adapted.by_layer(adapted.target)]
    outputs, target = _measured(adapted, batch, rules)
    _remember(adapted, target, torch.zeros_like(adapted.source_weight))
    return Replayed(outputs, 1)


def _rectified_tema(adapted: RectifiedTema, batch: Batch, sizes: Sequence[int]) -> Replayed:
    """Pass 1 of a batch needs the prior that the batches before it leave, and that needs pass 1.

    So the prior before each batch is guessed, and pass 1 repeated with what comes out until it
    stands still. Each sweep makes one more batch exact, so as many sweeps as batches are enough.
    """
    batches = Batches.of(sizes, adapted.target_mean)
    by_prior = average_weights([PRIOR_MOMENTUM] * len(sizes), adapted.prior)
    before = adapted.prior.expand(len(sizes), -1)  # (batch, layer); the first row is no guess
    for sweeps in range(1, len(sizes) + 1):  # noqa: B007 - told to who asks
        rules = _rectified_rules(adapted, batches, sizes, before)
        outputs, target = _measured(adapted, batch, rules)
        weights = source_weights_each(adapted.source, target, adapted.channels)
        priors = average_each(adapted.prior, weights, by_prior)  # after each batch
        guess, before = before, torch.cat([adapted.prior[None], priors[:-1]])
        if float((before - guess).abs().max()) < STANDS_STILL:
            break
    source_weight = weights if adapted.settings.passes == 2 else priors
    if adapted.settings.passes == 2:
        mixed = mix(adapted.source, target, weights[:, adapted.layer_of_channel])
        fixed = [FixedStatistics(each) for each in _by_layer(adapted, of_images(mixed, batches))]
        outputs = adapted.run_with(batch, fixed)
    _remember(adapted, target, source_weight[-1], prior=priors[-1])
    return Replayed(outputs, sweeps)


def _rectified_rules(
    adapted: RectifiedTema, batches: Batches, sizes: Sequence[int], prior: Tensor
) -> list[EachRectified]:
    """Those of pass 1. prior: before each batch, (batch, layer)."""
    momenta = [adapted.settings.momentum_for(size) for size in sizes]
    weights = average_weights(momenta, adapted.target_mean)
    starts, sources = adapted.by_layer(adapted.target), adapted.by_layer(adapted.source)
    return [
        EachRectified(batches, start, weights, source, of_layer)
        for start, source, of_layer in zip(starts, sources, prior.split(1, dim=1), strict=True)
    ]


REPLAYS: dict[type[AdaptedModel], Callable[[Any, Batch, Sequence[int]], Replayed]] = {
    Source: _source,
    TBN: _tbn,
    AlphaBN: _linear_mix,
    AdaptBN: _linear_mix,
    Tema: _tema,
    RectifiedTema: _rectified_tema,
}


def names() -> str:
    """Of the methods that can be replayed."""
    return ", ".join(method.name for method in REPLAYS)


def _measured(
    adapted: BatchNormMethod, batch: Batch, rules: Sequence[EachBatch]
) -> tuple[Tensor, ChannelStatistics]:
    """A pass, and the target statistics after each batch, (batch, all channels)."""
    outputs: Tensor = adapted.run_with(batch, rules)
    found = [rule.target for rule in rules if rule.target is not None]
    if len(found) < len(rules):
        raise ModelError("a layer was not used in this pass, which cannot be replayed")
    means, variances = zip(*found, strict=True)
    target = ChannelStatistics(torch.cat(means, dim=1), torch.cat(variances, dim=1))
    if not all(bool(torch.isfinite(each).all()) for each in target):
        for row in zip(*target, strict=True):
            adapted.check_finite(ChannelStatistics(*row))
    return outputs, target


def _by_layer(adapted: BatchNormMethod, statistics: ChannelStatistics) -> list[ChannelStatistics]:
    """(image, all channels), cut into those of each layer."""
    means, variances = (each.split(adapted.sizes, dim=1) for each in statistics)
    return [ChannelStatistics(*pair) for pair in zip(means, variances, strict=True)]


def _remember(
    adapted: BatchNormMethod, target: ChannelStatistics, source_weight: Tensor, **more: Tensor
) -> None:
    """The state after the last batch."""
    adapted.remember(
        len(target.mean),
        target_mean=target.mean[-1],
        target_variance=target.variance[-1],
        source_weight=source_weight,
        **more,
    )
