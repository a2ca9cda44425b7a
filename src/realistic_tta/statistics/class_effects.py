"""What the class of an image adds to its moments: learnt from predictions, and taken out again.

Where labels come in runs, the last images are of one or two classes, and their mean is that of the
domain and of these classes. The second part can be learnt: what the images of a class differ by
from all images is much the same under every corruption. What is known of the classes in a memory is
subtracted from it; of a batch whose classes are not known yet, what lies in the directions in which
classes differ. None of it where labels are not seen to come in runs. Used by methods/realistic.py.

Moments are those of all layers, one after another, in the source's units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .leaning import Number, at_least, numbers, share

MOST_GROUPS = 128  # neighbouring classes share an effect where there are more
_DOUBT = 8.0  # images of a class after which half of its effect is believed
_REACH = 400.0  # images of a class that its effect is averaged over
_MOST = 10.0  # that a class may add to a moment: one wild image must not be remembered for long
_MARGIN = 1.5  # times chance: no more is no sign of runs
_LEAST = 1e-9


class Effects(NamedTuple):
    """What has been learnt of the classes.

    moments: what images predicted so differ by from all, (group, moment).
    images: how many there were, (group,).
    runs: how concentrated the last images' classes were, and would be by chance; averages, (2,).
    """

    moments: Tensor
    images: Tensor
    runs: Tensor

    @classmethod
    def none(cls, classes: int, moments: int, like: Tensor) -> Effects:
        """Before the first image; each of a few classes is a group of its own."""
        groups = min(classes, MOST_GROUPS)
        return cls(like.new_zeros(groups, moments), like.new_zeros(groups), like.new_zeros(2))

    def believed(self) -> Tensor:
        """The effects about their mean, the less the fewer images there were, (group, moment)."""
        shrunk = self.moments * (self.images / (self.images + _DOUBT))[:, None]
        return shrunk - shrunk.mean(dim=0)


class Runs(NamedTuple):
    """What is to be taken out of the memories, and out of a batch.

    effects: believed, (group, moment).
    apart: how far the classes in each memory, and in each of the last batches, are from what is
        usual, (row, group).
    variance: of a class's share in the batch that comes, as far as labels come in runs, ().
    """

    effects: Tensor
    apart: Tensor
    variance: Tensor


def in_runs(runs: Tensor) -> Number:
    """How far labels come in runs, 0 to 1, a number; 0 while nothing has been predicted.

    runs: as in `Effects`.

    >>> [in_runs(torch.tensor([found, 0.125], device="cpu")) for found in (0.125, 0.75)]
    [0.0, 0.75]
    >>> in_runs(torch.zeros(2, device="cpu"))
    0.0
    """
    found, chance = numbers(runs)
    return 1 - share(at_least(_MARGIN * chance, _LEAST), at_least(found, _LEAST))


def watch(runs: Tensor, apart: Tensor, chance: Tensor, kept: Tensor) -> Tensor:
    """The averages after a batch. apart, chance: concentration of the last images; kept: decay."""
    return torch.lerp(torch.stack((apart, chance)), runs, kept)


def to_groups(of_classes: Tensor, groups: int) -> Tensor:
    """Sums over the classes of each group, (..., class) to (..., group).

    >>> to_groups(torch.tensor([1.0, 2.0, 3.0, 4.0], device="cpu"), 2).tolist()
    [3.0, 7.0]
    """
    classes = of_classes.shape[-1]
    if classes == groups:
        return of_classes
    place = torch.arange(classes, device=of_classes.device) * groups // classes
    return of_classes.new_zeros(*of_classes.shape[:-1], groups).index_add(-1, place, of_classes)


def find_runs(known: Effects, shares: Tensor, shortest: int) -> Runs:
    """What the classes that have been predicted make of the memories.

    shares: of each class in each memory, (row, class), the longest first; below them those in each
    of the last batches. shortest: the row of the shortest memory, which tells what classes come
    now. What is usual is what the longest holds; the more labels come in runs, the more it is all
    classes evenly.
    """
    groups = len(known.images)
    certainty = in_runs(known.runs)
    shares = to_groups(shares, groups)
    usual = torch.lerp(shares[0], torch.full_like(shares[0], 1 / groups), certainty)
    apart = (shares - usual) * shares.sum(dim=1, keepdim=True)  # none where nothing was predicted
    concentration = (apart[shortest].square().sum() / (1 - 1 / groups)).clamp_max(1)
    return Runs(known.believed(), certainty * apart, certainty * concentration / groups)


class Directions(NamedTuple):
    """In which classes differ in one layer: effects and weights, both (group, moment)."""

    effects: Tensor
    weights: Tensor


def directions(
    runs: Runs, spread: Tensor, sizes: Sequence[int], images: int | Tensor
) -> list[Directions]:
    """Of each layer; what a batch of so many images is to be freed from with `without_class`.

        weights = (effects @ effects.T + noise / variance) ** -1 @ effects

    A ridge regression on the effects: noise is the variance of a moment in the batch's mean.
    spread: squared distance of an image's moments from their mean, (layer,). sizes: how many
    moments each layer has.
    """
    effects = runs.effects.split(list(sizes), dim=1)
    moments = spread.new_tensor(sizes)
    ratio = runs.variance * images * moments / spread.clamp_min(_LEAST)  # (layer,)
    products = torch.stack([each @ each.T for each in effects])  # (layer, group, group)
    one = torch.eye(products.shape[1], dtype=spread.dtype, device=spread.device)
    inverse = torch.linalg.inv(products * ratio[:, None, None] + one) * ratio[:, None, None]
    return [
        Directions(own, each @ own) for own, each in zip(effects, inverse.unbind(), strict=True)
    ]


def without_class(batch: Tensor, usual: Tensor, directions: Directions) -> Tensor:
    """The batch's mean moments less what its classes may have added; both (1, moment).

    No more than a single class can add, which has a share of one: what is left is a new domain.
    """
    effects, weights = directions
    found = torch.mm(batch - usual, weights.t())  # (1, group)
    found = found / torch.linalg.vector_norm(found).clamp_min(1)
    return torch.addmm(batch, found, effects, alpha=-1)


def learn(known: Effects, moments: Tensor, answers: Tensor, centre: Tensor) -> Effects:
    """The effects with a batch's images.

    moments: summed over the images of each group, (group, moment). answers: how many images of each
    were predicted, (group,). centre: what all images have, freed from their classes, (moment,).
    """
    images = known.images + answers
    share = answers / images.clamp_min(1)
    found = (moments / answers.clamp_min(1)[:, None]).sub_(centre).clamp_(-_MOST, _MOST)
    after = torch.lerp(known.moments, found, share[:, None])
    return known._replace(moments=after, images=images.clamp_max(_REACH))
