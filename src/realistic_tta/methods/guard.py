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

from realistic_tta.errors import NotFiniteError

from .bad_samples import chosen, merged
from .batch import count_images, finite_samples
from .checks import check_count
from .health import logits_in
from .judge import advantage
from .outputs import widen
from .stored_state import own_state

if TYPE_CHECKING:
    from .base import AdaptedNetwork

_LOG = logging.getLogger("realistic_tta")


@dataclass(frozen=True)
class GuardSettings:
    """Chosen on validation corruptions, see docs/reliability.md.

    window: images that are judged together, the last ones that both networks were shown.
    least: images with which judging begins; until then the source answers.
    every: of a trusted method's images, one in so many is shown to the source, too.
    patience: images that a method goes on unheard before it falls.
    rest: images after a fall that the source answers alone, at no cost but its own.
    """

    window: int = 64
    least: int = 16
    every: int = 8
    patience: int = 512
    rest: int = 1024

    def __post_init__(self) -> None:
        for name in ("window", "least", "every", "patience", "rest"):
            check_count(name, getattr(self, name))


class Guard:
    """Watches a method, and answers in its place.

    pairs: logits of the method and of the source, batch by batch, oldest first.
    trusted: whether the method answers. doubted: images since it does not.
    seen: images since the start. fresh: pairs since `good` was stored. resting: images to go.
    good: the method's state when it was last judged better on a whole window.
    """

    def __init__(self, settings: GuardSettings | None = None) -> None:
        self.settings = settings or GuardSettings()
        self.forget()

    def forget(self) -> None:
        """As before the first image."""
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self.trusted = False
        self.seen = self.doubted = self.fresh = self.resting = 0
        self.good: dict[str, Tensor] | None = None

    def predict(self, adapted: AdaptedNetwork, args: Any, kwargs: Any) -> Any:
        """The outputs of whichever is better."""
        size = count_images(args, kwargs)
        if self.resting > 0:
            outputs = adapted.without_faulty(adapted.run_source, args, kwargs)
            self.resting -= size
            adapted.counts.by_source += size
            return outputs
        try:
            outputs = adapted.without_faulty(adapted.adapt_to, args, kwargs)
        except NotFiniteError:
            if not finite_samples(args, kwargs).all():
                raise
            self._fall(adapted, "its values are not finite any more")
            return self.predict(adapted, args, kwargs)
        logits = logits_in(outputs)
        if logits is None or logits.shape[1] < 2 or len(logits) != size:
            return outputs  # nothing to judge by
        return self._better(adapted, args, kwargs, outputs, logits)

    def _better(
        self, adapted: AdaptedNetwork, args: Any, kwargs: Any, outputs: Any, logits: Tensor
    ) -> Any:
        """Both networks' outputs compared; the better one's."""
        kept = torch.ones(len(logits), dtype=torch.bool, device="cpu") if adapted.kept is None else adapted.kept
        by_source = None
        if self.trusted and self._compared() >= self.settings.window:
            asked = sampled(self.seen, len(logits), self.settings.every) & kept.cpu()
            if asked.any():
                arguments = chosen((args, dict(kwargs)), asked, len(logits))
                self._compare(logits, from_source(adapted, *arguments), asked)
        elif kept.any():
            by_source = instead_of(outputs, adapted, args, kwargs, kept)
            self._compare(logits, by_source, kept)
        self._judge(adapted, len(logits))
        if self.trusted or not kept.any():
            return outputs
        if by_source is None:
            by_source = instead_of(outputs, adapted, args, kwargs, kept)
        adapted.counts.by_source += len(logits)
        if self.doubted >= self.settings.patience:
            self._fall(adapted, f"worse than the source for {self.doubted} images")
        return by_source

    def _compare(self, logits: Tensor, by_source: Any, asked: Tensor) -> None:
        """Remembers what both said of the images asked for."""
        answered = logits_in(by_source)
        assert answered is not None  # the same network, the same form
        if len(answered) == len(asked):
            answered = answered[asked.to(answered.device)]
        with torch.inference_mode(mode=False):  # copies: the caller may write into the outputs
            told = widen(logits.detach())[asked.to(logits.device)].clone()
            self.pairs.append((told, widen(answered.detach()).clone()))
        self.fresh += len(told)
        while self._compared() - len(self.pairs[0][0]) >= self.settings.window:
            del self.pairs[0]

    def _compared(self) -> int:
        return sum(len(told) for told, _ in self.pairs)

    def _judge(self, adapted: AdaptedNetwork, size: int) -> None:
        """Who answers from now on; a method that is good is remembered as it is."""
        self.seen += size
        if self._compared() >= self.settings.least:
            told, answered = (torch.cat(each) for each in zip(*self.pairs, strict=True))
            self.trusted = advantage(told, answered) >= 0
        self.doubted = 0 if self.trusted else self.doubted + size
        if not self.trusted:
            self.fresh = 0
        elif self.fresh >= self.settings.window:
            self.good = copied(own_state(adapted))
            self.fresh = 0

    def _fall(self, adapted: AdaptedNetwork, reason: str) -> None:
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


def instead_of(outputs: Any, adapted: AdaptedNetwork, args: Any, kwargs: Any, kept: Tensor) -> Any:
    """The source's outputs; those of faulty samples as they are."""
    if kept.all():
        return from_source(adapted, args, kwargs)
    arguments = chosen((args, dict(kwargs)), kept, len(kept))
    return merged(from_source(adapted, *arguments), chosen(outputs, ~kept, len(kept)), kept)


def from_source(adapted: AdaptedNetwork, args: Any, kwargs: Any) -> Any:
    """What the network as trained says; nothing is changed."""
    with torch.no_grad():
        return adapted.network(*args, **kwargs)


def copied(state: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a state, as they are now."""
    return {name: value.clone() for name, value in state.items() if isinstance(value, Tensor)}


def put_back(adapted: AdaptedNetwork, good: dict[str, Tensor]) -> None:
    """The state as it was, in one call into torch."""
    state = own_state(adapted)
    with torch.no_grad():
        torch._foreach_copy_([state[name] for name in good], list(good.values()))  # noqa: SLF001
