"""An alarm for batches that no longer look like clean ones, with a fixed rate of false alarms.

The score of a batch is the divergence of its statistics from the source's, summed over the layers.
Among n scores of clean batches, a new clean one is equally likely to take any rank, whatever the
model and the data. So its rank gives a p-value, and no threshold has to be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from realistic_tta.core.adapted_model import AdaptedModel
from realistic_tta.core.batch import Batch
from realistic_tta.core.divergence_probe import DivergenceProbe
from realistic_tta.errors import InputError, OptionError


@dataclass(frozen=True)
class Observation:
    """One batch: its divergence in nats, its p-value among clean batches, and the verdict."""

    divergence: float
    p_value: float
    alarm: bool


class DriftAlarm:
    """Tells whether a batch is further from the source than clean ones are.

    The score depends on the batch alone, at the cost of one forward pass: the model runs as it was
    trained, so clean batches stay exchangeable however long the stream. Make one with `calibrate`.

    >>> import torch
    >>> clean = torch.randn(8, 20, 3)
    >>> alarm = DriftAlarm.calibrate(nn.BatchNorm1d(3), clean, false_alarm_rate=0.2)
    >>> alarm.observe(clean[0] + 5).alarm
    True
    """

    def __init__(
        self, model: nn.Module, scores: Sequence[float], images: int, false_alarm_rate: float
    ) -> None:
        self._probe = DivergenceProbe(model)
        self.scores = tuple(scores)
        self.images = images
        self.false_alarm_rate = false_alarm_rate

    @classmethod
    def calibrate(
        cls, model: nn.Module, clean_batches: Iterable[Tensor], false_alarm_rate: float = 0.01
    ) -> Self:
        """Makes an alarm from clean batches of one size that the model was not trained on.

        Args:
            model: the model as trained.
            clean_batches: at least 1 / false_alarm_rate - 1 batches.
            false_alarm_rate: how often a clean batch may raise an alarm, on average.

        Returns:
            An alarm for batches of this size.

        Raises:
            OptionError: too few batches, an adapted model, or a rate that is not allowed.
        """
        if not isinstance(false_alarm_rate, float) or not 1e-9 <= false_alarm_rate <= 0.5:
            raise OptionError(
                f"false_alarm_rate is {false_alarm_rate!r}; expected a number from 1e-9 to 0.5"
            )
        if isinstance(model, AdaptedModel):
            raise OptionError("model is adapted; expected the model as trained")
        alarm = cls(model, (), 0, false_alarm_rate)
        for batch in clean_batches:
            alarm.images = alarm.images or Batch.of((batch,), {}).size
            alarm.scores += (alarm.divergence(batch),)
        needed = math.ceil(round(1 / false_alarm_rate, 6)) - 1
        if len(alarm.scores) < needed:
            raise OptionError(
                f"got {len(alarm.scores)} clean batches; a false-alarm rate of "
                f"{false_alarm_rate:g} needs {needed} or more"
            )
        return alarm

    def observe(self, batch: Tensor) -> Observation:
        """Scores one batch; an alarm is a p-value of false_alarm_rate or less."""
        score = self.divergence(batch)
        p = p_value(score, self.scores)
        return Observation(score, p, p <= self.false_alarm_rate)

    def divergence(self, batch: Tensor) -> float:
        """The divergence of the batch's statistics from the source's, in nats."""
        images = Batch.of((batch,), {}).size
        if images != self.images:
            raise InputError(
                f"a batch of {images} images, expected {self.images}: statistics of fewer images "
                "differ more, so each batch size needs its own alarm"
            )
        return self._probe(batch)


def p_value(score: float, clean: Sequence[float]) -> float:
    """The fraction of clean scores that are as high or higher, this one included.

        p = (1 + number of clean scores >= score) / (1 + number of clean scores)

    For a clean batch, p <= rate happens at most with that rate (Vovk 2005).

    >>> p_value(2.5, [1.0, 2.0, 3.0])
    0.5
    """
    return (1 + sum(each >= score for each in clean)) / (1 + len(clean))
