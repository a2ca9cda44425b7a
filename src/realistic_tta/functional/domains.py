"""Which of the kinds of images seen so far each image is of, or whether it is a new kind.

A kind, or domain, is known by the mean signature of its images (signature.py). Distances are
measured by what the parts of single images differ by: in directions in which a picture differs from
itself, two pictures may differ without being of two kinds. Used by methods/domains.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .content import Content, learn_content, scatter_of, whiten, whitening

NEW = 3.0  # times as far away as images of a kind are from its mean
FORETOLD = 0.85, 0.8  # kinds are believed a little below the first ratio, wholly below the second
_HELD = 0.05  # both lie so much higher for kinds that are believed already
_UNTOLD = 16.0  # images that kinds have foretold no better, at first
_START = 0.5, 4.0  # how far those are at first, a feature, and how many images that stands for
_RARE = 0.01  # how many images speak for a kind of which there has been none lately


class Domains(NamedTuple):
    """What is known of the kinds of images.

    signature: mean of each kind, (domain, feature). images: what has been seen of it, (domain,).
    recent: the same of the last training batch or so, (domain,).
    content: scatter of parts about their image, (feature, feature), and of how many images: ().
    apart: sum of the distances of images from their kind, and of how many images: (2,).
    """

    signature: Tensor
    images: Tensor
    recent: Tensor
    content: Tensor
    content_images: Tensor
    apart: Tensor

    @classmethod
    def none(cls, domains: int, features: int, like: Tensor) -> Domains:
        """Before the first image."""
        return cls(
            like.new_zeros(domains, features),
            like.new_zeros(domains),
            like.new_zeros(domains),
            like.new_zeros(features, features),
            like.new_zeros(()),
            like.new_zeros(2),
        )


class Recognised(NamedTuple):
    """places: the kind of each image, (image,). fresh: the kinds that are new, (domain,)."""

    places: Tensor
    fresh: Tensor
    after: Domains


def belief(foretold: Tensor, before: Tensor) -> Tensor:
    """How far kinds are to be believed, 0 to 1: as far as they foretell images better.

        ratio = distance from the memory of an image's kind / from that of the last training batch

    Pictures of one kind fall into groups, too, of bright and dark ones, and a group foretells its
    pictures a little better; to normalise it away would take away what is in them. Kinds that take
    turns foretell far better; once believed a little less so, as layers then see less of what the
    kinds differ by. foretold: both distances summed over images, a layer on average, in units of
    what images of a kind differ by, (2,). before: how far kinds are believed so far, ().

    >>> none, foretold = torch.zeros((), device="cpu"), torch.tensor([70.0, 100.0], device="cpu")
    >>> belief(foretold, none).item(), belief(foretold + torch.tensor([20.0, 0.0]), none).item()
    (1.0, 0.0)
    """
    of_kind, of_all = (foretold + _UNTOLD).unbind()
    begin, end = FORETOLD
    return ((begin + _HELD * before - of_kind / of_all) / (begin - end)).clamp(0, 1)


def recognise(
    domains: Domains, signatures: Tensor, parts: Tensor, decay: Tensor, recent_decay: Tensor
) -> Recognised:
    """The kind of each image, one after the other; only content is learnt from the whole batch.

    An image is of the kind that is nearest, those that have been frequent lately first:

        score = features * distance / usual distance - 2 * log(recent)

    as the odds of two normal distributions. It is a new kind where the nearest is NEW times as far
    away as usual; that takes the place of the kind of fewest images, none of which is of this
    batch. signatures: (image, feature). parts: theirs, (image, part, feature). decay: of what is
    known with each image. recent_decay: of what has been frequent.
    """
    content = Content(domains.content, domains.content_images)
    content = learn_content(content, scatter_of(parts), len(parts), decay)
    factor = whitening(content, parts.shape[1])
    white, means = whiten(signatures, factor), whiten(domains.signature, factor).contiguous()
    raw, images, recent = (each.clone() for each in domains[:3])
    apart, features = domains.apart.clone(), signatures.shape[1]
    fresh, taken = (torch.zeros(len(images), dtype=torch.bool, device=raw.device) for _ in range(2))
    places = torch.zeros(len(signatures), dtype=torch.int64, device=raw.device)
    for image, own in enumerate(white):
        distance = (means - own).square().sum(dim=1) / (1 + 1 / images)
        usual = (apart[0] + _START[0] * _START[1] * features) / (apart[1] + _START[1])
        score = features * distance / usual - 2 * (recent + _RARE).log()
        score = score.masked_fill(images == 0, torch.inf)
        place = score.argmin()
        is_new = (distance[place] > NEW * usual) | (images[place] == 0)
        free = images.masked_fill(taken, torch.inf).argmin()
        if is_new and not taken[free]:
            place = free
            fresh[place] = True
            raw[place], means[place], images[place], recent[place] = 0, 0, 0, 0
        else:
            apart = decay * apart + torch.stack((distance[place], torch.ones_like(usual)))
        taken[place] = True
        images[place] = decay * images[place] + 1
        recent = recent_decay * recent
        recent[place] += 1
        raw[place] += (signatures[image] - raw[place]) / images[place]
        means[place] += (own - means[place]) / images[place]
        places[image] = place
    after = Domains(raw, images, recent, *content, apart)
    return Recognised(places, fresh, after)
