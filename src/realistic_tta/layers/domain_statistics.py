"""The rule of methods/domains.py: statistics of each image's own kind.

It goes on where RememberedStatistics ends: from that estimate, which is of all images, to the
memory of those that are like this one, as far as chance does not explain the difference. The first
layer recognises the kinds; the others hear of them. Like every rule it changes nothing outside
itself, but for the recognition that all layers of one pass share.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from realistic_tta.functional.arrays import Array, as_tensor, at_hand
from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.domains import Domains, Recognised, recognise
from realistic_tta.functional.leaning import Number, number
from realistic_tta.functional.memories import Weights, add_images
from realistic_tta.functional.signature import has_signature, signatures

from .course import Course
from .remembered_statistics import Known, RememberedStatistics, add


class DomainMemory(NamedTuple):
    """What is known of the kinds of images in a layer.

    moments: averaged over the images of each kind, (domain, 2 * channel).
    spread: squared distance of an image's moments from those of its kind, ().
    spread_weight: of the images that it was measured from, ().
    """

    moments: Tensor
    spread: Tensor
    spread_weight: Tensor


class Weighed(NamedTuple):
    """What the images of a batch weigh in the memories of their kinds, in every layer.

    weights: with this batch, (layer, domain). share: of the batch, (layer, domain).
    uncertainty: variance of each memory's mean, as a part of the spread, (layer, domain).
    """

    weights: Weights
    share: Tensor
    uncertainty: Tensor


class Recognition:
    """The kinds of one batch's images, which its first layer finds and all of them use.

    weights: of each kind's images before the batch, (layer, domain). rates: at which a memory
    forgets, that of the kinds and that of what is frequent.
    noise, by_chance: how many times noise counts, and what of it is no reason to doubt.
    belief: how far kinds are believed, ().
    """

    found: Recognised | None = None
    members: Tensor  # which image is of which kind, (image, domain), 0 or 1
    counts: Tensor  # how many images there are of each kind, (domain,)
    weighed: Weighed

    def __init__(
        self,
        known: Domains,
        weights: Weights,
        *,
        rates: tuple[Tensor, Tensor],
        noise: tuple[float, float],
        belief: Tensor,
    ) -> None:
        self.known, self.weights = known, weights
        self.rates, (self.noise, self.by_chance), self.belief = rates, noise, belief

    def look(self, rule: RememberedStatistics, inputs: Tensor) -> None:
        """Recognises the images by what reaches the first layer."""
        rate, recent = (each.exp() for each in self.rates)
        told = signatures(inputs, rule.known.units)
        self.found = recognise(self.known, *told, rate, recent)
        kinds = torch.arange(len(self.found.fresh), device=inputs.device)
        self.members = (self.found.places[:, None] == kinds).to(rate.dtype)
        self.counts = self.members.sum(dim=0)
        present, before = self.counts > 0, self.without_replaced()
        after, share = add_images(before, self.rates[0], self.counts.clamp_min(1))
        weights = Weights(
            torch.where(present, after.total, before.total),
            torch.where(present, after.squares, before.squares),
        )
        doubtful = (self.noise / after.images - self.by_chance).clamp_min(0)
        self.weighed = Weighed(weights, share * present, doubtful)

    def without_replaced(self) -> Weights:
        """The weights before the batch, of kinds that have not been replaced by new ones."""
        assert self.found is not None
        old = ~self.found.fresh
        return Weights(self.weights.total * old, self.weights.squares * old)


class DomainStatistics(RememberedStatistics):
    """Leans on the source and the memories of all images, then on that of each image's kind."""

    in_c = False

    def __init__(
        self,
        place: int,
        known: Known,
        course: Course,
        memory: DomainMemory,
        recognition: Recognition,
    ) -> None:
        super().__init__(place, known, course)
        self.recognition = recognition
        self.before = self.memory = memory
        self.told_kinds = False  # whether the memory has this batch's images
        self.foretold = memory.moments.new_zeros(2)  # distances from what was foretold

    def estimate(self, inputs: Tensor) -> ChannelStatistics:
        """Of each image, (image, channel); of all, (channel,), where they are of one kind."""
        recognition = self.recognition
        if self.place == 0 and recognition.found is None and has_signature(inputs):
            recognition.look(self, inputs)
        return super().estimate(inputs)

    def finish(self, steps: Array, products: list[list[Number]]) -> ChannelStatistics:
        """From the estimate of all images to that of each kind, with the source in it."""
        found = self.recognition.found
        moments = None
        if self._alike():
            moments = torch.stack([as_tensor(use) for use, _ in self.uses]).mean(dim=0)
        if found is None or moments is None or len(moments) != len(found.places):
            return super().finish(steps, products)
        taken = self._lean(products)
        everyone = as_tensor(add(taken, steps))  # (2 * channel,)
        self.foretold = self._compare(moments, found)
        self.memory, self.told_kinds = self._remember(moments, found), True
        kinds, stay = self._lean_on_kinds(everyone)  # (domain, 2 * channel), (domain,)
        weight = self._weights(kinds)  # (domain,)
        used = kinds * (1 - weight)[:, None]
        of_source = 1 - (1 - weight) * (1 - stay * (1 - taken[0]))
        self.source_weight = number(of_source[found.places].mean())
        each = used[found.places]  # (image, 2 * channel)
        self.target = self.to_statistics(at_hand(each.mean(dim=0)))
        is_one = (found.places == found.places[0]).all() | (self.recognition.belief == 0)
        return self.target if is_one else self.to_statistics(at_hand(each))

    def _alike(self) -> bool:
        """Whether every use of the layer in this pass had the same images."""
        return len({len(moments) for moments, _ in self.uses}) == 1

    def _compare(self, moments: Tensor, found: Recognised) -> Tensor:
        """How far the images are from what their kind foretold, and all of the last images: (2,).

        In units of what images of a kind differ by, summed over those whose kind has been seen.
        """
        before = self.recognition.without_replaced()
        seen = before.total[self.place][found.places]  # (image,)
        own = (moments - self.before.moments[found.places]).square().sum(dim=1)
        recent = as_tensor(self.shares.usual)
        distances = torch.stack((own * seen / (seen + 1), (moments - recent).square().sum(dim=1)))
        spread = self.before.spread.clamp_min(_LEAST_SPREAD * moments.shape[1])
        return (distances * (seen > 0)).sum(dim=1) / spread

    def _remember(self, moments: Tensor, found: Recognised) -> DomainMemory:
        """The memory with these images: (image, 2 * channel)."""
        recognition, weighed = self.recognition, self.recognition.weighed
        means = recognition.members.T @ moments / recognition.counts.clamp_min(1)[:, None]
        before = self.before.moments * ~found.fresh[:, None]
        after = torch.lerp(before, means, weighed.share[self.place][:, None])
        images = weighed.weights.images[self.place][found.places]  # (image,)
        counts = images > 1.5  # one image has no spread
        apart = (moments - after[found.places]).square().sum(dim=1)
        apart = (apart * images / (images - 1).clamp_min(0.5) * counts).sum()
        number = counts.sum()
        kept = torch.exp(recognition.rates[0] * number)
        weight = kept * self.before.spread_weight + number
        share = number / weight.clamp_min(1)
        spread = torch.lerp(self.before.spread, apart / number.clamp_min(1), share)
        return DomainMemory(after, spread, weight)

    def _lean_on_kinds(self, everyone: Tensor) -> tuple[Tensor, Tensor]:
        """The estimate of each kind, and what of everyone's is left in it."""
        moments = self.memory.moments
        explained = self.recognition.weighed.uncertainty[self.place] * self.memory.spread
        gap = (moments - everyone).square().sum(dim=1)
        stay = (explained / gap.clamp_min(_LEAST)).clamp_max(1)  # (domain,)
        stay = 1 - self.recognition.belief * (1 - stay)
        return torch.lerp(moments, everyone, stay[:, None]), stay

    def _weights(self, kinds: Tensor) -> Tensor:
        """What the source weighs at last in each kind, (domain,)."""
        if self.shares.least is None:
            return torch.zeros_like(kinds[:, 0])
        distance = kinds.square().mean(dim=1)
        return (self.shares.tolerance / distance.clamp_min(_LEAST)).clamp(self.shares.least, 1)


_LEAST = 1e-30
_LEAST_SPREAD = 1e-3  # of a moment: a camera that is stuck shows one image for ever
