"""Do labels come in runs, and what does that tell of each image?

A camera shows one street for a while, a sorted stream one class after another: then what the images
before and after an image show tells more of it than the image itself does. A hidden Markov model of
the labels: an image has the label of the one before with a chance `stay`, or else any label.

    belief = prediction * (stay * belief before + (1 - stay) / classes), divided by its sum

How likely each stay makes the predictions, against labels in any order, tells whether they come in
runs and how long these are: Bayes over a few stays and none. Where they do not, nothing is made of
it. Used by methods/label_memory.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .arrays import Array, as_tensor, at_hand, positive_part, space
from .kernel import backward_at_once, forward_at_once
from .leaning import Number, number, numbers

STAYS = 0.5, 0.8, 0.95  # runs of 2, 5 and 20 images on average
_RUNS = 0.001  # chance that labels come in runs, before anything is known
_HAZARD = 0.001  # chance with every image that this is no longer known
_LONG = 0.0, 0.125, 0.25  # doubt that a change is one of domain, not of class, by stay
_DOUBT = 10.0  # images that evenly spread classes are worth at first
_SURE = 0.99  # that they come in any order: nothing is made of less
_TINY = 1e-30


class LabelOrder(NamedTuple):
    """What is known of the order of labels.

    ways: chance that labels come in any order, and of each stay, (1 + stay,).
    belief: in the label of the last image, for each stay, (stay, class).
    usual: share of each class, (class,). images: of how many, ().
    """

    ways: Array
    belief: Array
    usual: Array
    images: Array

    @classmethod
    def none(cls, classes: int, like: Tensor) -> LabelOrder:
        """Before the first image."""
        even = like.new_full((len(STAYS), classes), 1 / classes)
        return cls(_like(like, _AT_FIRST), even, even[0].clone(), like.new_tensor(_DOUBT))

    def runs(self) -> Number:
        """Chance that labels come in runs; 0 where it is small.

        >>> LabelOrder.none(10, torch.zeros(1, device="cpu")).runs()
        0.0
        """
        return _runs(number(self.ways[0]))

    def run_length(self) -> Number:
        """How many images a run has, if there are runs.

        >>> round(LabelOrder.none(10, torch.zeros(1, device="cpu")).run_length(), 3)
        9.0
        """
        _, *chances = numbers(self.ways)
        lengths = [chance / (1 - stay) for chance, stay in zip(chances, STAYS, strict=True)]
        return sum(lengths) / (sum(chances) + _TINY)

    def doubt_of_changes(self) -> Number:
        """How far what looks like a change of domain may be the next run of another class.

        Never wholly: where a fault has left the network with a single answer, that looks like a
        run, and only a change that is believed can end it.
        """
        any_order, *stays = numbers(self.ways)
        long: Number = sum(chance * each for chance, each in zip(stays, _LONG, strict=True))
        return long * (_runs(any_order) > 0)


def read(known: LabelOrder, predictions: Array, decay: float) -> tuple[Array | None, LabelOrder]:
    """What the labels around each image add to its logits, (image, class), and what is known then.

        log(belief) - log(prediction),      belief: over all ways, by how probable each is

    None where labels come in any order. predictions: probabilities, (image, class), in the order in
    which the images came. decay: of what is usual, with each image.
    """
    images, of = len(predictions), space(predictions)
    beliefs, totals = _forward(known.belief, predictions)
    ways = _weigh(known.ways, totals, predictions @ known.usual, predictions.shape[1])
    kept = (1 - _HAZARD) ** images
    after = LabelOrder(
        kept * ways + (1 - kept) * _like(ways, _AT_FIRST),
        beliefs[-1],
        *_learn_usual(known, beliefs, decay**images),
    )
    chance = _runs(number(ways[0]))
    if not isinstance(chance, Tensor) and chance == 0:
        return None, after
    of_stays = ways[1:] * (chance / (1 - ways[0] + _TINY))
    believed = (of_stays[:, None] * _backward(beliefs, predictions)).sum(1)  # (image, class)
    return of.log((believed + _TINY) / (predictions + _TINY) + (1 - chance)), after


def read_in_graph(
    known: LabelOrder, predictions: Tensor, decay: float
) -> tuple[Tensor, LabelOrder]:
    """The same as one operation of a compiled graph, which would unroll the images; 0 for None."""
    added, *after = _read_all([*known], predictions, decay)
    return added, LabelOrder(*after)


@torch.library.custom_op("realistic_tta::read_labels", mutates_args=())
def _read_all(known: list[Tensor], predictions: Tensor, decay: float) -> list[Tensor]:
    added, after = read(LabelOrder(*map(at_hand, known)), at_hand(predictions), decay)
    told = torch.zeros_like(predictions) if added is None else as_tensor(added)
    return [told, *(as_tensor(each).clone() for each in after)]


@_read_all.register_fake
def _(known: list[Tensor], predictions: Tensor, decay: float) -> list[Tensor]:  # noqa: ARG001 - shapes alone
    return [torch.empty_like(each) for each in (predictions, *known)]


def _weigh(ways: Array, totals: Array, usual: Array, classes: int) -> Array:
    """The chance of each way with a batch.

        likelihood of a stay = stay * (belief before . prediction) / (usual . prediction) + 1 - stay

    of every image; that of any order is 1. totals: as `_forward` gives them, of which the part of
    those that stay is to be found. usual: . prediction, (image,).
    """
    of, left = space(ways), 1 - _like(ways, STAYS)  # (stay,)
    foretold = positive_part(totals - left / classes) / (usual + _TINY)[:, None]
    chances = of.log(ways + _TINY)
    chances[1:] += of.log(foretold + left).sum(0)
    weights = of.exp(chances - chances.max())
    found: Array = weights / weights.sum()
    return found


def _learn_usual(known: LabelOrder, beliefs: Array, kept: float) -> tuple[Array, Array]:
    """The shares of the classes with this batch, and how many images they are of.

    Each image counts by what the longest runs make of it. Where one class is nearly all there is,
    in any order, that is as sure of it as the belief before an image: no run is seen in it.
    """
    before = kept * known.images
    images = before + len(beliefs)
    return (before * known.usual + beliefs[:, -1].sum(0)) / images, images


def _forward(belief: Array, predictions: Array) -> tuple[Array, Array]:
    """Beliefs from each image and those before, (image, stay, class), and their sums before they
    were divided by them, (image, stay).
    """
    stays = _like(predictions, STAYS)
    at_once = forward_at_once(belief, predictions, stays)
    if at_once is not None:
        return at_once
    stays, each = stays[:, None], predictions[:, None]  # (stay, 1), (image, 1, class)
    kept, beliefs = stays * each, (1 - stays) / predictions.shape[1] * each
    totals = kept[:, :, 0] * 0
    for image in range(len(predictions)):
        joint = beliefs[image] + kept[image] * belief
        totals[image] = total = joint.sum(1)
        beliefs[image] = belief = joint / (total + _TINY)[:, None]
    return beliefs, totals


def _backward(beliefs: Array, predictions: Array) -> Array:
    """The same with what the images after each tell, (image, stay, class)."""
    stays = _like(predictions, STAYS)
    at_once = backward_at_once(beliefs, predictions, stays)
    if at_once is not None:
        return at_once
    stays = stays[:, None]
    fresh = (1 - stays) / predictions.shape[1]
    smoothed = beliefs * 1
    later = fresh * 0 + 1  # of an image by those after it, up to a factor
    for image in range(len(predictions) - 1, 0, -1):
        joint = later * predictions[image]
        later = fresh + stays * (joint / (joint.sum(1) + _TINY)[:, None])
        smoothed[image - 1] *= later
    return smoothed / (smoothed.sum(2) + _TINY)[:, :, None]


def _runs(any_order: Number) -> Number:
    """Chance of runs, from that of any order."""
    return (1 - any_order) * (any_order <= _SURE)


def _like(array: Array, values: Sequence[float]) -> Array:
    """These values, where and as those of the array are."""
    if isinstance(array, Tensor):
        return array.new_tensor(values)
    like: Array = space(array).asarray(values, dtype=array.dtype)
    return like


_AT_FIRST = 1 - _RUNS, *(_RUNS / len(STAYS) for _ in STAYS)
