"""guard=True: returns the adapted predictions only while they are better than the source's.

Adapted and source predictions of the last images are compared without labels
(functional/source_comparison.py). A method judged worse keeps adapting, but the source answers. If
it stays worse for long, it returns to its last good state and rests.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from realistic_tta.core.adapted_model import Prediction, State, Updates, Wrapper
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import logits_in, widen
from realistic_tta.core.settings import Count, NonNegative, Probability, Settings
from realistic_tta.errors import NonFiniteError
from realistic_tta.functional.source_comparison import advantage, information

_LOG = logging.getLogger("realistic_tta")
_GOOD = "good:"  # prefix of the names under which the last good state is kept


@dataclass(frozen=True)
class GuardSettings(Settings):
    """The hyperparameters of the guard, chosen on corruptions that no benchmark uses.

    Args:
        window: the number of images that are compared: the last ones, or a part of a larger batch.
        min_images: the number of images from which on the method may answer.
        margin: the advantage in nats that the method must have to answer.
        every: a trusted method is compared on one in so many images, to save source forward passes.
        recent: the number of adapted predictions that are watched without a source forward pass.
        alarm: compare anew if recent predictions carry less than this part of the information.
        patience: the number of images that a method may stay worse before it is rolled back.
        rest: the number of images that the source answers alone after a rollback.

    >>> from torch import nn
    >>> from realistic_tta import GuardSettings, adapt
    >>> adapted = adapt(nn.BatchNorm2d(3), guard=GuardSettings(window=128))
    """

    window: Count = 64
    min_images: Count = 16
    margin: NonNegative = 0.03
    every: Count = 8
    recent: Count = 32
    alarm: Probability = 0.5
    patience: Count = 512
    rest: Count = 1024


class Counters(NamedTuple):
    """The counters of the guard, in images unless said otherwise.

    trusted: 1 while the method answers. seen: all. worse: since it was last trusted. compared:
    since the last good state. resting: that the source still answers alone. rollbacks: how often.
    source_answers: answered by the source.
    """

    trusted: int = 0
    seen: int = 0
    worse: int = 0
    compared: int = 0
    resting: int = 0
    rollbacks: int = 0
    source_answers: int = 0


class Guard(Wrapper):
    """Compares the adapted model with the source, and answers with the better one.

    State: `counters`; `adapted` and `source`, the logits that are compared, (image, class);
    `recent`, the latest adapted logits; and the last good state of the model inside.
    """

    name = "guard"
    settings_type = GuardSettings
    _settings: GuardSettings

    def _initial_state(self) -> State:
        empty = torch.zeros(0, 0, device=self._device)
        counters = torch.zeros(len(Counters._fields), dtype=torch.int64, device=self._device)
        return {
            "counters": counters,
            "adapted": empty,
            "source": empty,
            "recent": empty,
            **self._snapshot(self._inner._reset_updates()),
        }

    def _resizable(self) -> set[str]:
        good = {
            f"{_GOOD}{level.name}:{key}"
            for level in self._inner._levels()
            for key in level._resizable() & level._state().keys()
        }
        return {"adapted", "source", "recent", *good, *super()._resizable()}

    def _reset_updates(self) -> Updates:
        kept = self._counters()
        fresh = Counters(rollbacks=kept.rollbacks, source_answers=kept.source_answers)
        state = self._initial_state() | self._pack(fresh)
        return (*self._inner._reset_updates(), (self._buffers, state))

    def _counts(self) -> dict[str, int]:
        counters = self._counters()
        own = {"rollbacks": counters.rollbacks, "source_answers": counters.source_answers}
        return {**own, **self._inner._counts()}

    def _predict(self, batch: Batch) -> Prediction:
        counters = self._counters()
        if counters.resting > 0:
            return self._answer_by_source(batch, counters)
        try:
            prediction = self._inner._predict(batch)
        except NonFiniteError:
            return self._roll_back(batch, counters, "no longer finite")
        logits = logits_in(prediction.outputs)
        if logits is None or len(logits) != batch.size or logits.shape[1] < 2:
            return prediction  # not a classifier: nothing to compare
        return self._compare(batch, prediction, widen(logits), counters)

    def _compare(
        self, batch: Batch, prediction: Prediction, logits: Tensor, counters: Counters
    ) -> Prediction:
        """Updates the comparison with this batch, and answers with the better model."""
        settings, state = self._settings, self._state()
        adapted, source = state["adapted"], state["source"]
        recent = append(state["recent"], logits, settings.recent)
        if self._lost_information(recent, adapted, counters):
            adapted, source = adapted[:0], source[:0]
        sampling = counters.trusted and len(adapted) >= settings.window
        asked = every_nth(counters.seen, batch.size, settings.every if sampling else 1)
        source_outputs = self._inner._run_source(batch.select(asked)) if asked.any() else None
        if source_outputs is not None and (found := logits_in(source_outputs)) is not None:
            adapted = append(adapted, logits[asked.to(logits.device)], settings.window)
            source = append(source, widen(found), settings.window)
        trusted = bool(counters.trusted)
        if asked.any() and len(adapted) >= settings.min_images:
            trusted = advantage(adapted, source) > settings.margin
        counters = counters._replace(
            trusted=int(trusted),
            seen=counters.seen + batch.size,
            worse=0 if trusted else counters.worse + batch.size,
            compared=counters.compared + int(asked.sum()) if trusted else 0,
        )
        compared = {"adapted": adapted, "source": source, "recent": recent}
        if trusted:
            return self._trust(prediction, counters, compared)
        if counters.worse >= settings.patience:
            return self._roll_back(
                batch, counters, f"worse than the source for {counters.worse} images"
            )
        outputs = source_outputs if bool(asked.all()) else self._inner._run_source(batch)
        counters = counters._replace(source_answers=counters.source_answers + batch.size)
        return self._with(prediction, outputs, **compared, **self._pack(counters))

    def _trust(self, prediction: Prediction, counters: Counters, compared: State) -> Prediction:
        """The adapted prediction; a method that was good for a whole window is remembered."""
        good = {}
        if counters.compared >= self._settings.window:
            counters = counters._replace(compared=0)
            good = self._snapshot(prediction.updates)
        return self._with(
            prediction, prediction.outputs, **compared, **self._pack(counters), **good
        )

    def _lost_information(self, recent: Tensor, adapted: Tensor, counters: Counters) -> bool:
        """Whether a trusted method's predictions suddenly carry much less information."""
        if not counters.trusted or len(adapted) < self._settings.window:
            return False
        full = len(recent) == self._settings.recent
        return full and information(recent) < self._settings.alarm * information(adapted)

    def _answer_by_source(self, batch: Batch, counters: Counters) -> Prediction:
        counters = counters._replace(
            resting=max(0, counters.resting - batch.size),
            source_answers=counters.source_answers + batch.size,
        )
        outputs = self._inner._run_source(batch)
        return Prediction(outputs, ((self._buffers, self._pack(counters)),))

    def _roll_back(self, batch: Batch, counters: Counters, reason: str) -> Prediction:
        """The source's prediction; the model inside returns to its last good state."""
        _LOG.log(
            logging.INFO if counters.rollbacks else logging.WARNING,  # only the first one is news
            "%s was %s: it returns to its last good state. The source answers the next %d images",
            self._innermost.name,
            reason,
            self._settings.rest,
        )
        good = self._good_state()
        updates = [
            (level._buffers, {name: good[f"{_GOOD}{level.name}:{name}"] for name in level._state()})
            for level in self._inner._levels()
        ]
        rested = Counters(
            seen=counters.seen + batch.size,
            resting=self._settings.rest,
            rollbacks=counters.rollbacks + 1,
            source_answers=counters.source_answers + batch.size,
        )
        state = {**self._initial_state(), **self._pack(rested)}
        outputs = self._inner._run_source(batch)
        return Prediction(outputs, (*updates, (self._buffers, state)))

    def _snapshot(self, updates: Updates) -> State:
        """The state that the levels inside will have after these updates, under names of ours.

        Nothing is copied: a state is never changed in place.
        """
        new = {id(buffers): values for buffers, values in updates}
        return {
            f"{_GOOD}{level.name}:{name}": value
            for level in self._inner._levels()
            for name, value in {**level._state(), **new.get(id(level._buffers), {})}.items()
        }

    def _good_state(self) -> State:
        return {name: each for name, each in self._state().items() if name.startswith(_GOOD)}

    def _counters(self) -> Counters:
        return Counters(*self._state()["counters"].tolist())

    def _pack(self, counters: Counters) -> State:
        return {"counters": self._state()["counters"].new_tensor(counters)}


def every_nth(seen: int, size: int, every: int) -> Tensor:
    """Which images of a batch are among every `every`-th of the stream, (image,).

    >>> every_nth(6, 4, every=4).tolist()
    [False, False, True, False]
    """
    return (torch.arange(seen, seen + size, device="cpu") % every) == 0


def append(window: Tensor, new: Tensor, most: int) -> Tensor:
    """The last rows of both, (image, class); of a batch that is larger, evenly spaced ones.

    >>> before, batch = torch.zeros(3, 1, device="cpu"), torch.arange(6.0, device="cpu")[:, None]
    >>> append(before, batch[1:3], most=3).flatten().tolist()
    [0.0, 1.0, 2.0]
    >>> append(before, batch, most=3).flatten().tolist()
    [0.0, 2.0, 4.0]
    """
    if len(new) > most:
        return new[torch.arange(most, device=new.device) * len(new) // most]
    same = window.ndim == 2 and window.shape[1] == new.shape[1]
    return torch.cat([window.to(new), new])[-most:] if same else new.clone()
