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

from typing import NamedTuple

import torch
from torch import Tensor

from .leaning import number

STAYS = 0.5, 0.8, 0.95  # runs of 2, 5 and 20 images on average
_RUNS = 0.001  # chance that labels come in runs, before anything is known
_HAZARD = 0.001  # chance with every image that this is no longer known
_DOUBT = 10.0  # images that evenly spread classes are worth at first
_SURE = 0.99  # that they come in any order: nothing is made of less
_TINY = 1e-30


class LabelOrder(NamedTuple):
    """What is known of the order of labels.

    ways: chance that labels come in any order, and of each stay, (1 + stay,).
    belief: in the label of the last image, for each stay, (stay, class).
    usual: share of each class, (class,). images: of how many, ().
    """

    ways: Tensor
    belief: Tensor
    usual: Tensor
    images: Tensor

    @classmethod
    def none(cls, classes: int, like: Tensor) -> LabelOrder:
        """Before the first image."""
        even = like.new_full((len(STAYS), classes), 1 / classes)
        return cls(_at_first(like), even, even[0].clone(), like.new_tensor(_DOUBT))

    def runs(self) -> Tensor:
        """Chance that labels come in runs, (); 0 where it is small.

        >>> LabelOrder.none(10, torch.zeros(1, device="cpu")).runs().item()
        0.0
        """
        return _runs(self.ways)


def read(known: LabelOrder, predictions: Tensor, decay: float) -> tuple[Tensor | None, LabelOrder]:
    """What the labels around each image add to its logits, (image, class), and what is known then.

        log(belief) - log(prediction),      belief: over all ways, by how probable each is

    None where labels come in any order. predictions: probabilities, (image, class), in the order in
    which the images came. decay: of what is usual, with each image.
    """
    beliefs, totals = _forward(known.belief, predictions)
    usual = predictions @ known.usual  # (image,)
    ways = _weigh(known.ways, totals, usual, predictions.shape[1])
    kept = (1 - _HAZARD) ** len(predictions)
    after = LabelOrder(
        torch.lerp(_at_first(ways), ways, kept),
        beliefs[-1],
        *_learn_usual(known, beliefs, decay ** len(predictions)),
    )
    chance = number(_runs(ways))
    if not isinstance(chance, Tensor) and chance == 0:
        return None, after
    of_stays = ways[1:] * chance / (1 - ways[0]).clamp_min(_TINY)
    believed = torch.einsum("s,isc->ic", of_stays, _backward(beliefs, predictions))
    return torch.log((believed + _TINY) / (predictions + _TINY) + (1 - chance)), after


def read_in_graph(
    known: LabelOrder, predictions: Tensor, decay: float
) -> tuple[Tensor, LabelOrder]:
    """The same as one operation of a compiled graph, which would unroll the images; 0 for None."""
    added, *after = _read_all([*known], predictions, decay)
    return added, LabelOrder(*after)


@torch.library.custom_op("realistic_tta::read_labels", mutates_args=())
def _read_all(known: list[Tensor], predictions: Tensor, decay: float) -> list[Tensor]:
    added, after = read(LabelOrder(*known), predictions, decay)
    return [torch.zeros_like(predictions) if added is None else added, *map(torch.clone, after)]


@_read_all.register_fake
def _(known: list[Tensor], predictions: Tensor, decay: float) -> list[Tensor]:  # noqa: ARG001 - shapes alone
    return [torch.empty_like(each) for each in (predictions, *known)]


def _weigh(ways: Tensor, totals: Tensor, usual: Tensor, classes: int) -> Tensor:
    """The chance of each way with a batch.

        likelihood of a stay = stay * (belief before . prediction) / (usual . prediction) + 1 - stay

    of every image; that of any order is 1. totals: as `_forward` gives them, of which the part of
    those that stay is to be found. usual: . prediction, (image,).
    """
    left = 1 - _stays(usual)  # (stay,)
    foretold = (totals - left / classes).clamp_min(0) / usual.clamp_min(_TINY)[:, None]
    likelihood = torch.log(foretold + left).sum(dim=0)  # (stay,)
    return torch.softmax(ways.log() + torch.cat((likelihood.new_zeros(1), likelihood)), dim=0)


def _learn_usual(known: LabelOrder, beliefs: Tensor, kept: float) -> tuple[Tensor, Tensor]:
    """The shares of the classes with this batch, and how many images they are of.

    Each image counts by what the longest runs make of it. Where one class is nearly all there is,
    in any order, that is as sure of it as the belief before an image: no run is seen in it.
    """
    images = kept * known.images + len(beliefs)
    return torch.lerp(known.usual, beliefs[:, -1].mean(dim=0), len(beliefs) / images), images


def _forward(belief: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
    """Beliefs from each image and those before, (image, stay, class), and their sums before they
    were divided by them, (image, stay).
    """
    stays = _stays(predictions)[:, None]  # (stay, 1)
    each = predictions[:, None]  # (image, 1, class)
    kept, fresh = stays * each, (1 - stays) / predictions.shape[1] * each
    beliefs, totals = [], []
    for stayed, changed in zip(kept.unbind(), fresh.unbind(), strict=True):
        joint = torch.addcmul(changed, stayed, belief)
        total = joint.sum(dim=1, keepdim=True)
        belief = joint / total.clamp_min(_TINY)
        beliefs.append(belief)
        totals.append(total)
    return torch.stack(beliefs), torch.cat(totals, dim=1).T


def _backward(beliefs: Tensor, predictions: Tensor) -> Tensor:
    """The same with what the images after each tell, (image, stay, class)."""
    stays = _stays(predictions)[:, None]
    fresh = (1 - stays) / predictions.shape[1]
    later = torch.ones_like(beliefs[-1])
    told = [later]  # of each image by those after it, up to a factor; the last first
    for prediction in predictions[1:].flip(0).unbind():
        joint = later * prediction
        total = joint.sum(dim=1, keepdim=True).clamp_min(_TINY)
        later = torch.addcmul(fresh, stays, joint / total)
        told.append(later)
    smoothed = beliefs * torch.stack(told).flip(0)
    return smoothed / smoothed.sum(dim=2, keepdim=True).clamp_min(_TINY)


def _runs(ways: Tensor) -> Tensor:
    return torch.where(ways[0] > _SURE, 0.0, 1 - ways[0])


def _stays(like: Tensor) -> Tensor:
    return like.new_tensor(STAYS)


def _at_first(like: Tensor) -> Tensor:
    return like.new_tensor([1 - _RUNS, *(_RUNS / len(STAYS) for _ in STAYS)])
