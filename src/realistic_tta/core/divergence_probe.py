"""Measures how far a batch is from the source, without adapting. Used by serving/drift_alarm.py."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from realistic_tta.functional.rectification import channel_divergence
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import InterpolatedStatistics

from .adapted_model import run_model
from .batch import Batch


class DivergenceProbe:
    """Runs a copy of a model as trained, and measures the inputs of its BatchNorm layers."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.layers = AdaptiveLayers.replace(copy.deepcopy(model), "DriftAlarm")
        self.model.eval()

    def __call__(self, batch: Any) -> float:
        """The divergence of the batch's statistics from the source's, summed over all layers."""
        call = Batch.of((batch,), {})
        call.check(self.model)
        rules = [
            InterpolatedStatistics(source, source_weight=1.0, group=None)
            for source in self.layers.split(self.layers.source)
        ]
        with torch.no_grad(), self.layers.following(rules):
            run_model(self.model, call)
        target = self.layers.collect_target(rules, self.layers.source)
        self.layers.check_finite(target)
        return float(channel_divergence(self.layers.source, target).sum())
