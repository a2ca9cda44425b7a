"""realistic: source and target statistics, mixed by how far chance explains their distance.

The default method. Every layer keeps statistics of the stream, averaged over images: the weight of
an image falls to a tenth within as many images as a training batch had. It also keeps the variance
between images, which tells how uncertain the average is. The target gets half of the weight in the
paper's mix with the source (Eq. 7), or less: the less, the more of its distance from the source
chance alone explains. It takes one pass, and the current batch counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Count, Probability, Settings
from realistic_tta.core.target_state import (
    freeze_target,
    initial_target,
    target_after,
    target_report,
)
from realistic_tta.functional.channel_statistics import ChannelStatistics, mix
from realistic_tta.functional.shrinkage import TINY, ImageWeights, precision
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import ShrinkageInputs, ShrunkImageAverage

LAST_WEIGHT = 0.1  # of an image one training batch ago: the threshold of the paper's Proposition 2


@dataclass(frozen=True)
class Realistic(Settings):
    """The hyperparameters of realistic.

    source_batch_size: the batch size of the model's training. Target statistics rest on about as
        many images as the source statistics did in training.
    max_target_weight: the largest weight of the target in the mix with the source.
    """

    source_batch_size: Count = 128  # CIFAR; 256 is usual on ImageNet
    max_target_weight: Probability = 0.5  # the paper's bound between source and target


class RealisticModel(AdaptedModel):
    """Averages statistics over images, and shrinks them to the source.

    Its state adds `between`, the variance between the images' means, (all channels,), and the sums
    of the images' weights and of their squares, `weight` and `squared_weight`, (layer,).
    """

    name = "realistic"
    settings_type = Realistic
    compiles = True
    takes_process_group = True
    _settings: Realistic

    def __init__(self, model: nn.Module, settings: Realistic) -> None:
        model, layers = AdaptiveLayers.replace(model, self.name)
        super().__init__(model, settings)
        self._layers = layers
        self._register_state()

    def _initial_state(self) -> State:
        state = initial_target(self._layers, from_source=True)
        return state | {
            "between": torch.zeros_like(state["target_mean"]),
            "weight": torch.zeros_like(state["source_weight"]),
            "squared_weight": torch.zeros_like(state["source_weight"]),
        }

    def _predict(self, batch: Batch) -> Prediction:
        """One pass; each layer adds the batch to its average, and mixes that with the source."""
        state, layers = self._state(), self._layers
        decay = LAST_WEIGHT ** (batch.size / self._settings.source_batch_size)
        weights = ImageWeights(state["weight"], state["squared_weight"]).after(batch.size, decay)
        rules = [
            ShrunkImageAverage(inputs, self._group)
            for inputs in self._per_layer(state, batch.size / weights.total, weights.images() - 1)
        ]
        with layers.following(rules):
            outputs = self._run(batch)
        after = target_after(layers, rules, state, _source_weights(rules, state))
        old = state["between"].split(layers.sizes)
        between = [
            rule.between if rule.target else each for rule, each in zip(rules, old, strict=True)
        ]
        return self._after(
            outputs,
            between=torch.cat(between),
            weight=layers.merge_where_used(rules, weights.total, state["weight"]),
            squared_weight=layers.merge_where_used(rules, weights.squares, state["squared_weight"]),
            **after,
        )

    def _per_layer(
        self, state: State, batch_weight: Tensor, other_images: Tensor
    ) -> Iterator[ShrinkageInputs]:
        """The numbers that each layer needs.

        batch_weight: the weight of the batch against the past, (layer,). other_images: the
        effective number of images beside one, (layer,).
        """
        layers, maximum = self._layers, self._settings.max_target_weight
        variances = torch.stack((state["target_variance"], state["between"]))  # (2, all channels)
        return map(
            ShrinkageInputs,
            map(
                ChannelStatistics,
                state["target_mean"].split(layers.sizes),
                variances.split(layers.sizes, dim=1),
            ),
            (1 - batch_weight).unbind(),
            layers.split(layers.source),
            precision(layers.source.variance, layers.per_channel(layers.channels)).split(
                layers.sizes
            ),
            (maximum / other_images.clamp_min(TINY)).unbind(),
            (maximum * (other_images > 0)).unbind(),
        )

    def freeze(self) -> nn.Module:
        """A plain copy of the original model with the mixed statistics."""
        return freeze_target(self._model, self._layers, self._state(), mix)

    def report(self) -> Report:
        """Every layer with its divergence and source weight."""
        state = self._state()
        used = (state["weight"] > 0).tolist()
        return target_report(self.name, self._model, self._layers, state, used=used)


def _source_weights(rules: list[ShrunkImageAverage], state: State) -> Tensor:
    """The weight of the source in each layer, (layer,); 1 in layers that were not used."""
    unused = state["source_weight"].new_zeros(())
    return 1 - torch.stack([rule.target_weight if rule.target else unused for rule in rules])
