"""Watches the layers of a method during a run: `rtta bench --traces`.

runner.py asks for a point whenever the course of the error gets one. Points are plain numbers in
the tally, so they are saved and restored with the run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from realistic_tta.benchmark.trace_files import Trace, TracePoint
from realistic_tta.methods.base import AdaptedModel
from realistic_tta.methods.batch_norm_method import BatchNormMethod

from .metrics import Point, Tally


class LastLayer(NamedTuple):
    """The last BatchNorm layer. source, used: means from training and in use now, (channel,)."""

    name: str
    source: Tensor
    used: Tensor

    @property
    def channel(self) -> int:
        """The traced one: the largest mean in training, so never one that is always off.

        Known from the network alone, so that all methods trace the same channel.
        """
        return int(self.source.abs().argmax())


def last_layer(adapted: AdaptedModel) -> LastLayer | None:
    """None in a network without BatchNorm statistics."""
    if isinstance(adapted, BatchNormMethod) and adapted.layers:
        source, used = (adapted.by_layer(each)[-1].mean for each in (adapted.source, adapted.used))
        return LastLayer(adapted.layers[-1].name, source, used)
    own = [
        LastLayer(name, module.running_mean, module.running_mean)
        for name, module in adapted.network.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]
    return own[-1] if own else None


def trace_point(adapted: AdaptedModel, images: int) -> Point:
    """A TracePoint in plain numbers. images: seen so far."""
    last, layers = last_layer(adapted), adapted.report().layers
    mean = None if last is None else _short(float(last.used[last.channel]))
    weights = [_short(layer.source_weight) for layer in layers]
    return images, mean, weights, [_short(layer.divergence) for layer in layers]


def _short(number: float | None) -> float | None:
    """Six digits; None for what JSON cannot hold."""
    return float(f"{number:.6g}") if number is not None and math.isfinite(number) else None


def finished_trace(key: str, adapted: AdaptedModel, tally: Tally) -> Trace:
    """The trace of a run that came to its end."""
    assert tally.trace is not None
    last = last_layer(adapted)
    return Trace(
        key=key,
        layer=last.name if last else None,
        channel=last.channel if last else None,
        source_mean=_short(float(last.source[last.channel])) if last else None,
        layers=tuple(layer.name for layer in adapted.report().layers),
        points=tuple(
            TracePoint(images, mean, tuple(weights), tuple(divergences))
            for images, mean, weights, divergences in tally.trace
        ),
    )
