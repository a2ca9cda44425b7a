"""Never worse than doing nothing: notices, without labels, that a method has lost its way.

Asked for by adapt(..., guard=True). The measure is how much the predictions tell of the images,
`information`: it goes to nothing when all images get one class, and when no image gets any. The
source network, asked on the same images, says whether that is the method's fault. Used by base.py.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from realistic_tta.errors import NotFiniteError

from .batch import count_images, finite_samples
from .entropy import entropy
from .health import logits_in
from .outputs import map_tensors, widen

if TYPE_CHECKING:
    from .base import AdaptedNetwork

_LOG = logging.getLogger("realistic_tta")


@dataclass(frozen=True)
class GuardSettings:
    """Chosen on four corruptions of the package's photographs, see docs/reliability.md.

    window: images that are judged together; more if a batch is larger.
    suspect_below: information, as a share of what is possible, at which the source is asked.
    margin: how much more the source must tell for a fall, in the same shares.
    acquitted: windows that are not looked at after the source was no better: it costs a pass.
    rest: images answered by the source after a fall; twice as many after each that comes early.
    """

    window: int = 32
    suspect_below: float = 0.35
    margin: float = 0.2
    acquitted: int = 4
    rest: int = 1024


class Guard:
    """Watches a method; when it falls, resets it and lets the source answer for a while.

    calls: arguments and logits since the last judgement. resting: images that the source still
    answers. stood: images since the last fall. falls: those that came early, one after another.
    """

    def __init__(self, settings: GuardSettings | None = None) -> None:
        self.settings = settings or GuardSettings()
        self.falls = 0
        self.forget()

    def forget(self) -> None:
        """As after a reset: what was seen, and a rest, are over; how often it fell is not."""
        self.calls: list[tuple[Any, Tensor]] = []
        self.resting = self.stood = self.unwatched = 0

    def predict(self, adapted: AdaptedNetwork, args: Any, kwargs: Any) -> Any:
        """The method's outputs; the source's while it rests, and for the batch it falls on."""
        size = count_images(args, kwargs)
        if self.resting > 0:
            self.resting -= size
            return from_source(adapted, args, kwargs)
        try:
            outputs = adapted.adapt_without_faulty(args, kwargs)
        except NotFiniteError:
            if not finite_samples(args, kwargs).all():
                raise
            self._fall(adapted, "its values are not finite any more")
            return from_source(adapted, args, kwargs)
        self.stood += size
        if self._is_lost(adapted, args, kwargs, outputs):
            self._fall(adapted, "its predictions tell less of the images than the source's")
            return from_source(adapted, args, kwargs)
        return outputs

    def _is_lost(self, adapted: AdaptedNetwork, args: Any, kwargs: Any, outputs: Any) -> bool:
        """Judges the window, if it is full."""
        logits = logits_in(outputs, adapted.kept)
        if logits is None or not len(logits):
            return False
        call = (args, kwargs), logits
        if len(logits) >= self.settings.window:
            self.calls = [call]  # a window of its own
        else:
            self.calls.append(map_tensors(torch.clone, call))  # the caller may write into them
        if sum(len(each) for _, each in self.calls) < self.settings.window:
            return False
        calls, self.calls = self.calls, []
        if self.unwatched:
            self.unwatched -= 1
            return False
        return self._tells_less(adapted, calls)

    def _tells_less(self, adapted: AdaptedNetwork, calls: list[tuple[Any, Tensor]]) -> bool:
        told = torch.cat([logits for _, logits in calls])
        found = information(told)
        possible = math.log(max(2, min(told.shape)))  # images or classes, whichever are fewer
        if found >= self.settings.suspect_below * possible:
            return False
        by_source = [logits_in(from_source(adapted, *arguments)) for arguments, _ in calls]
        source = information(torch.cat([each for each in by_source if each is not None]))
        lost = source - found > self.settings.margin * possible
        self.unwatched = 0 if lost else self.settings.acquitted
        return lost

    def _fall(self, adapted: AdaptedNetwork, reason: str) -> None:
        early = self.stood < self.settings.rest
        self.falls = self.falls + 1 if early else 0
        adapted.reset()  # forgets this guard's window too
        self.resting = self.settings.rest * 2 ** (self.falls - 1) if early else 0
        _LOG.warning(
            "%s was reset: %s. The source answers the next %d images",
            adapted.name,
            reason,
            self.resting,
        )


def from_source(adapted: AdaptedNetwork, args: Any, kwargs: Any) -> Any:
    """What the network as trained says; nothing is changed."""
    with torch.no_grad():
        return adapted.network(*args, **kwargs)


def information(logits: Tensor) -> float:
    """What the predictions tell of the images, in nats: (image, class) to a number.

    entropy of the mean prediction - mean entropy of the predictions

    0 if all are alike, ln(classes) if all are sure and no class comes more often than another.

    >>> round(information(torch.eye(4, device="cpu") * 99), 4), round(math.log(4), 4)
    (1.3863, 1.3863)
    >>> round(information(torch.zeros(4, 4, device="cpu")), 4)
    0.0
    """
    logits = widen(logits.detach())
    mean = logits.softmax(dim=1).mean(dim=0)  # (class,)
    return float(torch.special.entr(mean).sum() - entropy(logits).mean())
