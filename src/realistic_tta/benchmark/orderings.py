"""The order of the images: pure functions from labels, parts and a seed to indices.

An ordering is a list of loaders. A batch never crosses the end of its loader: in the continual
scenarios every corruption has its own loader, as in the reference framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
GRADUAL = (1, 2, 3, 4, 5, 4, 3, 2, 1)


class Part(NamedTuple):
    """One corruption at one severity."""

    corruption: str
    severity: int


class Loader(NamedTuple):
    """Images that are split into batches together.

    parts: (image,), the part of each image. images: (image,), its index in the part.
    """

    parts: Indices
    images: Indices


def one_severity(corruptions: Sequence[str], severity: int = 5) -> tuple[Part, ...]:
    """Every corruption once.

    >>> one_severity(["fog", "snow"], 5)
    (Part(corruption='fog', severity=5), Part(corruption='snow', severity=5))
    """
    return tuple(Part(corruption, severity) for corruption in corruptions)


def up_and_down(corruptions: Sequence[str]) -> tuple[Part, ...]:
    """Every corruption at severities 1 2 3 4 5 4 3 2 1."""
    return tuple(Part(corruption, severity) for corruption in corruptions for severity in GRADUAL)


def choose(available: int, images: int | None, seed: int, *, shuffle: bool) -> Indices:
    """The images of every part, in order; all parts share one permutation.

    A subset is the first images of the permutation, so both orders contain the same images.

    >>> choose(5, 3, 1, shuffle=True).tolist(), choose(5, 3, 1, shuffle=False).tolist()
    ([4, 0, 1], [0, 1, 4])
    """
    chosen = np.random.default_rng(seed).permutation(available)[:images]
    return chosen if shuffle else np.sort(chosen)


def sort_by_label(labels: Indices) -> Indices:
    """A stable sort by label.

    >>> sort_by_label(np.array([1, 0, 1, 0])).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(labels, kind="stable")


def dirichlet_chunks(labels: Indices, delta: float, seed: int) -> Indices:
    """Runs of labels with Dirichlet(delta) lengths (Gong 2022, NOTE; Yuan 2023, RoTTA).

    There are as many chunks as classes. Each class is split over the chunks in proportions drawn
    from Dirichlet(delta, ..., delta): a small delta keeps it in one chunk, a large one spreads it
    evenly. Within a chunk the classes follow one another in random order.
    """
    random = np.random.default_rng(seed)
    classes = np.unique(labels)
    chunks: list[list[Indices]] = [[] for _ in classes]
    for label in classes:
        members = np.flatnonzero(labels == label)
        ratios = random.dirichlet(np.full(len(classes), delta))
        cuts = np.rint(np.cumsum(ratios[:-1]) * len(members)).astype(np.int64)
        for chunk, few in zip(chunks, np.split(members, cuts), strict=True):
            chunk.append(few)
    runs = [chunk[place] for chunk in chunks for place in random.permutation(len(classes))]
    return np.concatenate(runs)


def concatenated(parts: int, images: Indices) -> list[Loader]:
    """One loader per part, each with the same images in the same order."""
    return [Loader(np.broadcast_to(np.int64(part), images.shape), images) for part in range(parts)]


def shuffled_together(parts: int, images: Indices, seed: int) -> list[Loader]:
    """One loader with the images of all parts, shuffled."""
    count = parts * len(images)
    order = np.random.default_rng([seed, count]).permutation(count)
    return [Loader(order // len(images), images[order % len(images)])]


def correlate(loader: Loader, labels: Indices, delta: float | None, seed: int) -> Loader:
    """The loader's images in runs of equal labels.

    labels: (image,), of every part. delta: None sorts; a number draws Dirichlet chunks.
    """
    shown = labels[loader.images]
    order = sort_by_label(shown) if delta is None else dirichlet_chunks(shown, delta, seed)
    return Loader(loader.parts[order], loader.images[order])
