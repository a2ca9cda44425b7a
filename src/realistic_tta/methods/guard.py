"""Never worse than doing nothing: lets a method answer only while it is better than the source.

Asked for by adapt(..., guard=True). judge.py says, without labels, which of the two is better on
the images that both were shown. The method goes on unheard while it is worse, and may come back;
if it does not, it returns to the last state that was good. Used by base.py.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from realistic_tta.errors import NonFiniteError

from .batch import count_images, finite_samples
from .both import BothNetworks
from .checks import check_count, check_number
from .judge import information
from .pairs import Pairs, copied
from .stored_state import own_state

if TYPE_CHECKING:
    from .base import AdaptedModel

_LOG = logging.getLogger("realistic_tta")


@dataclass(frozen=True)
class GuardSettings:
    """Chosen on validation corruptions, see docs/reliability.md.

    window: images that are judged together, the last ones that both networks were shown.
    least: images with which judging begins; until then the source answers.
    margin: nats by which the method must be the better one to answer.
    every: of a trusted method's images, one in so many is shown to the source, too.
    recent: images whose answers are watched alone, at no forward.
    alarm: share of what the judged answers tell; if the recent ones tell less, all is judged anew.
    patience: images that a method goes on unheard before it falls.
    rest: images after a fall that the source answers alone, at no cost but its own.
    """

    window: int = 64
    least: int = 16
    margin: float = 0.03
    every: int = 8
    recent: int = 32
    alarm: float = 0.5
    patience: int = 512
    rest: int = 1024

    def __post_init__(self) -> None:
        for name in ("window", "least", "every", "recent", "patience", "rest"):
            check_count(name, getattr(self, name))
        check_number("margin", self.margin, low=0)
        check_number("alarm", self.alarm, low=0, high=1)


class Guard:
    """Watches a method, and lets the source answer in its place.

    pairs: what both said of the last images. recent: what the method alone said of the very last,
    (image, class). trusted: whether the method answers.
    doubted: images since it does not. resting: images that the source still answers alone.
    seen: images since the start. fresh: pairs since the last good state, `good`, was stored.
    """

    def __init__(self, settings: GuardSettings | None = None) -> None:
        self.settings = settings or GuardSettings()
        self.forget()

    def forget(self) -> None:
        """As before the first image."""
        self.pairs = Pairs()
        self.recent: Tensor | None = None
        self.trusted = False
        self.seen = self.doubted = self.fresh = self.resting = 0
        self.good: dict[str, Tensor] | None = None

    def predict(self, adapted: AdaptedModel, args: Any, kwargs: Any) -> Any:
        """The outputs of whichever is better."""
        if self.resting > 0:
            outputs = adapted.without_faulty(adapted.run_source, args, kwargs)
            size = count_images(args, kwargs)
            self.resting -= size
            adapted.counts.by_source += size
            return outputs
        try:
            outputs = adapted.without_faulty(adapted.adapt_to, args, kwargs)
        except NonFiniteError:
            if not finite_samples(args, kwargs).all():
                raise
            self._fall(adapted, "no longer finite")
            return self.predict(adapted, args, kwargs)
        call = BothNetworks(adapted, args, kwargs, outputs, count_images(args, kwargs))
        return self._better(call) if call.can_be_judged() else outputs

    def _better(self, call: BothNetworks) -> Any:
        """Compares, judges, and answers for whoever is the better one."""
        by_source = None
        self._listen(call)
        if self.trusted and len(self.pairs) >= self.settings.window:
            asked = sampled(self.seen, call.size, self.settings.every) & call.kept
        else:
            asked, by_source = call.kept, call.by_source()
        if asked.any():
            self.pairs.add(*call.logits(asked, by_source), self.settings.window)
            self.fresh += int(asked.sum())
            self._judge()
        self._note(call)
        if self.trusted:
            return call.outputs
        if by_source is None:
            by_source = call.by_source()
        call.adapted.counts.by_source += call.size
        if self.doubted >= self.settings.patience:
            self._fall(call.adapted, f"worse than the source for {self.doubted} images")
        return by_source

    def _listen(self, call: BothNetworks) -> None:
        """A method whose answers suddenly say little is judged anew, by what comes from now on."""
        heard = [] if self.recent is None else [self.recent]
        heard.append(copied(call.adapted_logits(call.kept)))
        with torch.inference_mode(mode=False):  # it may be left before the next batch
            self.recent = torch.cat(heard)[-self.settings.recent :]
        if not self.trusted or len(self.pairs) < self.settings.window:
            return  # all is compared
        full = len(self.recent) == self.settings.recent
        if full and information(self.recent) < self.settings.alarm * self.pairs.information():
            self.pairs = Pairs()

    def _judge(self) -> None:
        """Who answers from now on."""
        if len(self.pairs) >= self.settings.least:
            self.trusted = self.pairs.advantage() > self.settings.margin

    def _note(self, call: BothNetworks) -> None:
        """How long it is doubted; a method that was good for a whole window is remembered."""
        self.seen += call.size
        self.doubted = 0 if self.trusted else self.doubted + call.size
        if not self.trusted:
            self.fresh = 0
        elif self.fresh >= self.settings.window:
            self.good, self.fresh = copy_of_state(own_state(call.adapted)), 0

    def _fall(self, adapted: AdaptedModel, reason: str) -> None:
        """Back to the last good state, once; to the source if there is none. Then a rest."""
        good = self.good
        if good is None:
            adapted.reset()  # this guard, too
        else:
            put_back(adapted, good)
            self.forget()
        self.resting = self.settings.rest
        adapted.counts.falls += 1
        level = logging.INFO if adapted.counts.falls > 1 else logging.WARNING  # the first is news
        _LOG.log(
            level,
            "%s was %s: back to %s. The source answers the next %d images",
            adapted.name,
            reason,
            "its source" if good is None else "its last good state",
            self.resting,
        )


def sampled(seen: int, size: int, every: int) -> Tensor:
    """Which images of a batch are among every so many of the stream, (image,).

    >>> sampled(6, 4, every=4).tolist()
    [False, False, True, False]
    """
    return (torch.arange(seen, seen + size, device="cpu") % every) == 0


def copy_of_state(state: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a state, as they are now."""
    with torch.inference_mode(mode=False):
        return {name: value.clone() for name, value in state.items() if isinstance(value, Tensor)}


def put_back(adapted: AdaptedModel, good: dict[str, Tensor]) -> None:
    """The state as it was, in one call into torch."""
    state = own_state(adapted)
    with torch.no_grad():
        torch._foreach_copy_([state[name] for name in good], list(good.values()))
