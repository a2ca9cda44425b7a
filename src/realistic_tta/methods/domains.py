"""realistic for streams in which images of several kinds take turns: several cameras, or weathers.

It recognises the kinds by itself, from what reaches the first layer, and gives each image the
statistics of its own kind. docs/beyond.md says when it is better than realistic, and when not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from realistic_tta.errors import SettingError
from realistic_tta.functional.domains import Domains, belief
from realistic_tta.functional.memories import Weights
from realistic_tta.functional.signature import FEATURES
from realistic_tta.layers.course import Course
from realistic_tta.layers.domain_statistics import (
    DomainMemory,
    DomainStatistics,
    Recognition,
)
from realistic_tta.layers.remembered_statistics import Known, RememberedStatistics

from .batch import Batch
from .checks import check_count
from .realistic import SPREAD_START, Realistic
from .realistic_settings import RealisticSettings

_NOISE = 2.0  # times realistic's: images of a kind are found by what they look like, not drawn


@dataclass(frozen=True)
class DomainsSettings(RealisticSettings):
    """As realistic's, and domains: how many kinds of images are kept apart at most."""

    domains: int = 12
    changes: bool = False  # kinds that take turns are kept apart, not forgotten
    mirror: int = 0  # a layer has statistics for each image, and none for mirror images

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("domains", self.domains)
        without = {"robust": True, "total_variance": False, "changes": True}
        refused = [
            f"{name}={value}" for name, value in without.items() if getattr(self, name) is value
        ]
        refused += [f"mirror={self.mirror}"] if self.mirror else []
        if refused:
            what = refused[0]
            raise SettingError(f'domains cannot be had with {what}; method="realistic" takes it')


class DomainsMethod(Realistic):
    """Statistics of each image's own kind, on top of realistic's.

    Buffers besides realistic's; a domain is a kind of images:
    domain_moments: of the images of each, (domain, 2 * all channels), as `memories`.
    domain_total, domain_squares: of the weights of its images, (layer, domain).
    domain_spread, domain_spread_weight: of images about their kind, (layer,).
    foretold: how far images were from what their kind foretold, and the last images: (2,).
    believed: how far kinds are believed, 0 to 1, ().
    kinds_...: what they are recognised by (statistics/domains.py).
    """

    name = "domains"
    compiles = False
    takes_replicas = False
    settings_type = DomainsSettings
    settings: DomainsSettings
    recognition: Recognition | None = None  # of the pass under way
    domain_moments: Tensor
    domain_total: Tensor
    domain_squares: Tensor
    domain_spread: Tensor
    domain_spread_weight: Tensor
    foretold: Tensor
    believed: Tensor

    @property
    def kinds(self) -> Domains:
        """What the kinds of images are recognised by."""
        return Domains(*(self.get_buffer(f"kinds_{name}") for name in Domains._fields))

    def predict(self, batch: Batch) -> Any:
        """As realistic; a recognition lasts for one batch."""
        self.recognition = self._recognition()
        try:
            return super().predict(batch)
        finally:
            self.recognition = None

    def _start(self) -> dict[str, Tensor]:
        start, domains, layers = super()._start(), self.settings.domains, len(self.layers)
        like = self.source_mean
        kinds = Domains.none(domains, FEATURES * self.sizes[0], like)
        return start | {
            "domain_moments": like.new_zeros(domains, 2 * sum(self.sizes)),
            "domain_total": like.new_zeros(layers, domains),
            "domain_squares": like.new_zeros(layers, domains),
            "domain_spread": 2 * SPREAD_START * self.channels.to(like.dtype),
            "domain_spread_weight": like.new_zeros(layers),
            "foretold": like.new_zeros(2),
            "believed": like.new_zeros(()),
            **{f"kinds_{name}": value for name, value in kinds._asdict().items()},
        }

    def _recognition(self) -> Recognition:
        settings, rates = self.settings, self.rate
        return Recognition(
            self.kinds,
            Weights(self.domain_total, self.domain_squares),
            rates=(rates[0], rates[min(1, len(rates) - 1)]),
            noise=(_NOISE * settings.noise, 1 / settings.source_batch_size),
            belief=self.believed,
        )

    def _rule(self, place: int, known: Known, course: Course) -> RememberedStatistics:
        assert self.recognition is not None
        begin, size = 2 * sum(self.sizes[:place]), 2 * self.sizes[place]
        moments = self.domain_moments.narrow(1, begin, size)
        memory = DomainMemory(moments, self.domain_spread[place], self.domain_spread_weight[place])
        return DomainStatistics(place, known, course, memory, self.recognition)

    def _noted(self, rules: Sequence[RememberedStatistics], course: Course) -> dict[str, Tensor]:
        """Besides, what is known of the kinds, in the layers that were told of them."""
        noted, recognition = super()._noted(rules, course), self.recognition
        assert recognition is not None
        if recognition.found is None:
            return noted
        mine = [rule for rule in rules if isinstance(rule, DomainStatistics)]
        told = torch.tensor([rule.told_kinds for rule in mine], device=self.domain_total.device)
        before, after = recognition.without_replaced(), recognition.weighed.weights
        kinds = recognition.found.after._asdict()
        kept = torch.exp(recognition.rates[0] * len(recognition.found.places))
        now = torch.stack([rule.foretold for rule in mine]).mean(dim=0)
        foretold = kept * self.foretold + now
        return noted | {
            "domain_moments": torch.cat([rule.memory.moments for rule in mine], dim=1),
            "domain_spread": torch.stack([rule.memory.spread for rule in mine]),
            "domain_spread_weight": torch.stack([rule.memory.spread_weight for rule in mine]),
            "foretold": foretold,
            "believed": belief(foretold, self.believed),
            "domain_total": torch.where(told[:, None], after.total, before.total),
            "domain_squares": torch.where(told[:, None], after.squares, before.squares),
            **{f"kinds_{name}": value for name, value in kinds.items()},
        }
