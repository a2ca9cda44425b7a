"""Whether an image is the same thing in the mirror, told by the answers to both, class by class.

A cat in the mirror is a cat, a 3 is nothing, and "turn left" is "turn right". Where the answers to
images and to their mirror images are alike, they are two looks at one thing, and their mean is
better than either. Where they are not, the mirror image is not asked. Nobody has to say which: what
a class is like is averaged over the images that are taken for it.
Used by methods/mirror_memory.py.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .arrays import Array, as_tensor

_MOST = 0.4  # of an answer that is the mirror image's: where they contradict, the image is right
_UNLIKE, _ALIKE = 0.6, 0.8  # likeness at which the mirror begins to count, and counts wholly
_DOUBT = 8.0  # images that were unlike, at first: nothing counts until it has been seen to agree
_NEIGHBOURS = 2.0  # images of what is usual among all classes, for a class hardly seen yet
_HOPELESS = 32.0  # images after which it is believed that the mirror is of no use
_TINY = 1e-30


class Likeness(NamedTuple):
    """What is known of the answers in the mirror.

    sums: of the likeness of both answers, for each class that images are taken for, (class,).
    images: how many these were, (class,).
    """

    sums: Array
    images: Array

    @classmethod
    def none(cls, classes: int, like: Tensor) -> Likeness:
        """Before the first image."""
        return cls(like.new_zeros(classes), like.new_zeros(classes))

    def belief(self) -> Array:
        """How far each class is believed to be the same in the mirror, 0 to 1, (class,).

        None more than all of them together: where most are not, the others are those that a
        mirror image is taken for.
        """
        usual = self._usual()
        each = (self.sums + _NEIGHBOURS * usual) / (self.images + _NEIGHBOURS)
        return _believed(each) * _believed(usual)

    def is_hopeless(self) -> bool:
        """Whether the mirror does not show the same, so far as it is known."""
        return bool(self.images.sum() >= _HOPELESS and _believed(self._usual()) == 0)

    def _usual(self) -> Array:
        """Likeness of all classes together, ()."""
        return (_UNLIKE * _DOUBT + self.sums.sum()) / (_DOUBT + self.images.sum())


def compare(known: Likeness, predictions: Array, mirrored: Array, decay: float) -> Likeness:
    """With some more images; predictions, mirrored: probabilities, (image, class).

        likeness = cosine of both predictions           1: the same, 0: nothing in common

    An image counts for each class by its prediction. decay: of what is known, with each image.
    """
    both = (predictions * mirrored).sum(1)
    lengths = (predictions * predictions).sum(1) * (mirrored * mirrored).sum(1)
    alike, kept = both / (lengths + _TINY) ** 0.5, decay ** len(predictions)
    return Likeness(
        kept * known.sums + alike @ predictions, kept * known.images + predictions.sum(0)
    )


def second_look(known: Likeness, logits: Tensor, mirrored: Tensor) -> Tensor:
    """Logits with those of the mirror images in them, (image, class); both finite.

        share = 0.4 * belief                                  of each class
        log p = (1 - share) * log p + share * log p in the mirror

    What the classes have together, each by its belief, stays as it was: the mirror tells those
    apart that are the same in it, and nothing of the others.

    >>> import torch
    >>> sums, images = torch.tensor([[90.0, 90.0, 1.0], [100.0, 100.0, 10.0]], device="cpu")
    >>> logits = torch.tensor([[0.4, 0.1, 0.5], [0.1, 0.4, 0.5]], device="cpu").log()
    >>> found = second_look(Likeness(sums, images), logits[:1], logits[1:]).softmax(1)
    >>> [round(each, 2) for each in found.flatten().tolist()]
    [0.28, 0.22, 0.5]
    """
    belief = as_tensor(known.belief()).to(logits.dtype)  # (class,)
    own, other = logits.log_softmax(dim=1), mirrored.log_softmax(dim=1)
    moved = _MOST * belief * (other - own)
    before, after = (each.exp() @ belief + _TINY for each in (own, own + moved))  # (image,)
    return logits + moved + belief * (before / after).log()[:, None]


def _believed(likeness: Array) -> Array:
    """0 where both answers have little in common, 1 where they have much."""
    believed: Array = ((likeness - _UNLIKE) / (_ALIKE - _UNLIKE)).clip(0, 1)
    return believed
