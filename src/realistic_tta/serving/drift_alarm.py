"""An alarm when batches no longer look like clean ones, with a rate of false alarms that is kept.

A batch's score is how far its statistics are from the source's, summed over the layers. Among n
scores of clean batches a new clean one is equally likely to take any rank, whatever the network
and the data: so its rank gives a p-value, and no threshold has to be guessed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from realistic_tta.errors import InputError, SettingError
from realistic_tta.functional.rectification import channel_divergence
from realistic_tta.methods.base import AdaptedModel
from realistic_tta.methods.batch import count_images
from realistic_tta.methods.catalogue import adapt
from realistic_tta.methods.checks import check_number


@dataclass(frozen=True)
class Observation:
    """One batch: its divergence in nats, its p-value among the clean ones, and the verdict."""

    divergence: float
    p_value: float
    alarm: bool


class DriftAlarm:
    """Says of each batch whether it is further from the source than clean ones are.

    The score is a function of the batch alone: a copy of the network, running as it was trained,
    measures what reaches its layers, at the cost of one forward. What the network has been adapted
    to does not matter, so clean batches stay exchangeable however long the stream.

    Make one with `calibrate`.
    """

    def __init__(
        self, network: nn.Module, scores: Sequence[float], images: int, false_alarm_rate: float
    ) -> None:
        # The source's statistics alone, yet the batch's are measured at every layer.
        self.measuring: Any = adapt(network, "alpha_bn", target_weight=0.0, on_bad_input="raise")
        self.scores = tuple(scores)
        self.images = images
        self.false_alarm_rate = false_alarm_rate

    @classmethod
    def calibrate(
        cls, network: nn.Module, clean_batches: Iterable[Tensor], false_alarm_rate: float = 0.01
    ) -> Self:
        """From clean batches that the network was not trained on, all of the size to come.

        network: as trained, or adapted. At least 1 / false_alarm_rate - 1 batches are needed.
        """
        check_number("false_alarm_rate", false_alarm_rate, low=1e-9, high=0.5)
        if isinstance(network, AdaptedModel):
            network = _source_of(network)
        alarm = cls(network, (), 0, false_alarm_rate)
        for batch in clean_batches:
            alarm.images = alarm.images or count_images((batch,), {})
            alarm.scores += (alarm.divergence(batch),)
        needed = math.ceil(round(1 / false_alarm_rate, 6)) - 1
        if len(alarm.scores) < needed:
            raise SettingError(
                f"{len(alarm.scores)} clean batches came; a false-alarm rate of "
                f"{false_alarm_rate:g} needs {needed} or more"
            )
        return alarm

    def observe(self, batch: Tensor) -> Observation:
        """Looks at one batch; an alarm is a p-value of false_alarm_rate or less."""
        score = self.divergence(batch)
        p = p_value(score, self.scores)
        return Observation(score, p, p <= self.false_alarm_rate)

    def divergence(self, batch: Tensor) -> float:
        """Of the batch's statistics from the source's, in nats, summed over the layers."""
        images = count_images((batch,), {})
        if images != self.images:
            raise InputError(
                f"a batch of {images} images, expected {self.images}: statistics of fewer images "
                "differ more, so that each size needs an alarm of its own"
            )
        self.measuring(batch)
        source, target = self.measuring.source, self.measuring.target
        return float(channel_divergence(source, target).sum())


def p_value(score: float, clean: Sequence[float]) -> float:
    """The share of clean scores that are as high or higher, this one counted among them.

        p = (1 + number of clean scores >= score) / (1 + number of clean scores)

    If the score is of a clean batch, too, p <= rate happens at most that often (Vovk 2005).

    >>> p_value(2.5, [1.0, 2.0, 3.0])
    0.5
    """
    return (1 + sum(each >= score for each in clean)) / (1 + len(clean))


def _source_of(adapted: AdaptedModel) -> nn.Module:
    """The network as it was trained."""
    fresh: Any = copy.deepcopy(adapted)
    with torch.no_grad():
        fresh.reset()
    plain: nn.Module = fresh.freeze()
    return plain
