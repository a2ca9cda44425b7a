"""When the present domain began: how probable each of the last batches is as its first.

Bayesian online change point detection (Adams and MacKay 2007) on the mean signatures of batches
(signature.py). For every moment at which the domain may have begun there is a mean of the batches
since; the one that foretells the next batch well becomes more probable, and a domain that begins
now is as probable as a batch that none of them foretold. Nothing is decided: a batch from before
counts for as much as it is probable that nothing has changed since.
Used by normalization/course.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from .arrays import Array, alike, as_tensor, join, space
from .content import Content, learn_content, whitened_squares
from .leaning import Number, at_least, at_most, log, number, numbers, together

RECENT = 16  # batches at each of which the domain may have begun
_HAZARD = 0.001  # chance of a change with every image
_BETWEEN = 3.0  # variance between domains, in units of that between images of one
_INDEPENDENT = 12.0  # features that a signature is worth: neighbouring channels say the same
_FREEDOM = 7.5  # degrees of freedom: a tail for odd pictures
_WARM = 30.0  # images after which half of the hazard is believed: content has to be known first
_START = 0.5, 4.0  # distance of images from their domain's mean at first, and what that weighs
_UNUSUAL = 4.0  # times what is usual: the most that a batch counts for
_LEAST_USUAL = 0.1  # however alike images are: a camera may be stuck for days
_REACH = 1000.0  # images that distance is averaged over
_SURE = 0.999
_IMPOSSIBLE = -1e9
_LEAST = 1e-6


class Changes(NamedTuple):
    """What is known of the course of the stream.

    signatures: mean of each of the last batches, the newest first, (batch, feature).
    images: how many each had, (batch,).
    older, older_images: the same of all that came before and is of one domain with them.
    beginnings: logarithm of the chance that the domain began with each of the batches, and, last,
        that it began before them, (batch + 1,).
    usual: squared distance of images from their domain's mean, a feature, and its weight, (2,).
    content, content_images: as `Content` has them.
    """

    signatures: Array
    images: Array
    older: Array
    older_images: Array
    beginnings: Array
    usual: Array
    content: Array
    content_images: Array

    @classmethod
    def none(cls, features: int, like: Tensor) -> Changes:
        """Before the first batch: the domain began before it."""
        beginnings = like.new_full((RECENT + 1,), _IMPOSSIBLE)
        beginnings[-1] = 0
        return cls(
            like.new_zeros(RECENT, features),
            like.new_zeros(RECENT),
            like.new_zeros(features),
            like.new_zeros(()),
            beginnings,
            like.new_tensor(_START),
            like.new_zeros(features, features),
            like.new_zeros(()),
        )


class Seen(NamedTuple):
    """What a batch tells of the past.

    recent: how probable it is that nothing has changed since each of the last batches, (batch,).
    older: the same of what came before them, ().
    joined: the chance that the oldest of them is of one domain with what came before it, ().
    """

    recent: Array
    older: Array
    joined: Array

    @classmethod
    def nothing(cls, recent: int, like: Tensor) -> Seen:
        """Nothing has changed, so far as anybody looked."""
        return cls(like.new_ones(recent), like.new_ones(()), like.new_ones(()))

    def doubted(self, doubt: Number) -> Seen:
        """With a doubt, 0 to 1, that there are any changes."""
        if not isinstance(doubt, Tensor) and doubt == 0:
            return self
        return Seen(*(each + doubt * (1 - each) for each in self))


class Sight(NamedTuple):
    """What is looked at of a batch.

    signature: mean over the images, (feature,). scatter: of their parts, as `scatter_of` gives it.
    images: how many they are. parts: of an image.
    """

    signature: Array
    scatter: Array
    images: int
    parts: int


def look(known: Changes, sight: Sight, decay: Number) -> tuple[Seen, Changes]:
    """What a batch tells, and what is known with it.

    decay: of what is known of content, with each image.

        chance that the domain began with batch b = before * (1 - hazard) * density(distance)
        chance that it begins now                 = hazard * density(what is usual between domains)
    """
    signature, scatter, images, _ = sight
    content = learn_content(Content(known.content, known.content_images), scatter, images, decay)
    distance, shares = _distances(known, sight, content)
    (variance, _), seen_before = numbers(known.usual), number(known.content_images)
    hazard = (1 - (1 - _HAZARD) ** images) * (seen_before / (seen_before + _WARM))
    stayed = known.beginnings + log_density(distance, shares * variance)  # but for 1 - hazard
    foretold_by_none = variance * (1 / images + _BETWEEN)
    now = log(hazard / (1 - hazard)) + _log_density_at(foretold_by_none)
    now = at_least(now, _IMPOSSIBLE)  # no change with the first batch
    of, chances = space(stayed), join((stayed[:1] * 0 + now, stayed), 0)  # (batch + 2,)
    likelihood, after = _normalised(chances)
    began = of.flip(of.flip(likelihood, (0,)).cumsum(0), (0,))  # with this batch or before
    oldest, older = after[-2:-1], after[-1:]
    sure = _or_sure(join((began[1:], 1 / (1 + of.exp(oldest - older))), 0))
    seen = Seen(sure[:-2], sure[-2], sure[-1])
    of_stayed, _ = _normalised(stayed)
    found = number(of_stayed @ (distance / shares))
    return seen, Changes(
        join((signature[None], known.signatures[:-1]), 0),
        join((known.images[:1] * 0 + images, known.images[:-1]), 0),
        *_older(known, seen.joined),
        join((after[:-2], of.logaddexp(oldest, older)), 0),
        _with_distance(known, found, images),
        *content,
    )


def _normalised(chances: Array) -> tuple[Array, Array]:
    """Chances that add up to 1, and their logarithms, from logarithms."""
    of = space(chances)
    chances = chances - chances.max()
    each = of.exp(chances)
    total = each.sum()
    return each / total, chances - of.log(total)


def _older(known: Changes, joined: Array) -> tuple[Array, Array]:
    """What came before the last batches, with the oldest of them: its signature, and images."""
    images = joined * known.older_images + known.images[-1]
    share = known.images[-1] / (images + _LEAST)
    return known.older + share * (known.signatures[-1] - known.older), images.clip(max=_REACH)


def _or_sure(chances: Array) -> Array:
    """Chances; those that are as good as certain are 1, which saves work (statistics/memories.py).

    >>> import torch
    >>> _or_sure(torch.tensor([0.5, 0.9995], device="cpu")).tolist()
    [0.5, 1.0]
    """
    sure = chances > _SURE
    return chances * ~sure + sure


def _with_distance(known: Changes, found: Number, images: int) -> Array:
    """What is usual after a batch so far from its domain's mean, a feature, an image: (2,).

    Whether or not it is a change: where all images are unlike each other, that is usual. But a
    change is rare and far away, and counts no more than so many times what is usual.
    """
    usual, weight = numbers(known.usual)
    added = images * (number(known.content_images) > 0)  # the first has nothing to be far from
    weight = weight * math.exp(-images / _REACH) + added
    after = usual + added / weight * (at_most(found, _UNUSUAL * usual) - usual)
    both = together([at_least(after, _LEAST_USUAL), weight], like=as_tensor(known.usual))
    return alike(both, known.usual)


def _distances(known: Changes, sight: Sight, content: Content) -> tuple[Array, Array]:
    """From the mean since each beginning, a feature, squared, (batch + 1,).

    And how much chance makes of it, in units of a single image's: 1 / images + 1 / images since.
    """
    rows = join((known.signatures, known.older[None]), 0)
    counts = join((known.images, known.older_images[None]), 0)[:, None]
    since = counts.cumsum(0) + _LEAST  # (batch + 1, 1)
    means = (rows * counts).cumsum(0) / since
    squares = whitened_squares(content, sight.parts, sight.signature - means)
    return squares / means.shape[1], (1 / since + 1 / sight.images)[:, 0]


def log_density(distance: Array, variance: Array) -> Array:
    """Of a batch so far from what was foretold, but for a constant: Student's.

    distance: squared, a feature. variance: what is expected of it.
    """
    freedom, features, of = _FREEDOM, _INDEPENDENT, space(distance)
    tail = of.log1p(distance / variance * (features / freedom))
    density: Array = of.log(variance) * (-0.5 * features) - tail * (0.5 * (freedom + features))
    return density


def _log_density_at(variance: Number) -> Number:
    """The same where the distance is what is expected."""
    tail = math.log1p(_INDEPENDENT / _FREEDOM)
    return -0.5 * (_INDEPENDENT * log(variance) + (_FREEDOM + _INDEPENDENT) * tail)
