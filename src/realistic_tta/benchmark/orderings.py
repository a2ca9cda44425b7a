"""Which image comes when: pure functions from labels, parts and a seed to indices.

An ordering is a list of loaders. A batch never reaches over the end of its loader: where
corruptions come one after another each has a loader of its own, as in the reference framework.
stream.py cuts the loaders into batches; settings.py names the orderings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
GRADUAL = (1, 2, 3, 4, 5, 4, 3, 2, 1)


class Part(NamedTuple):
    """One corruption at one severity: a domain of the stream."""

    corruption: str
    severity: int


class Loader(NamedTuple):
    """Images that are cut into batches together.

    parts: (image,), which part of the stream each is of. images: (image,), its number in the part.
    """

    parts: Indices
    images: Indices


def one_severity(corruptions: Sequence[str], severity: int = 5) -> tuple[Part, ...]:
    """Every corruption once.

    >>> one_severity(["fog", "snow"])
    (Part(corruption='fog', severity=5), Part(corruption='snow', severity=5))
    """
    return tuple(Part(corruption, severity) for corruption in corruptions)


def up_and_down(corruptions: Sequence[str]) -> tuple[Part, ...]:
    """Every corruption at severities 1 2 3 4 5 4 3 2 1."""
    return tuple(Part(corruption, severity) for corruption in corruptions for severity in GRADUAL)


def choose(available: int, images: int | None, seed: int, *, shuffle: bool) -> Indices:
    """The images of every part, in the order they are shown: one permutation for all parts.

    A smaller number takes the permutation's first, so that it is the same images in file order.

    >>> choose(5, 3, 1, shuffle=True).tolist(), choose(5, 3, 1, shuffle=False).tolist()
    ([4, 0, 1], [0, 1, 4])
    """
    chosen = np.random.default_rng(seed).permutation(available)[:images]
    return chosen if shuffle else np.sort(chosen)


def sort_by_label(labels: Indices) -> Indices:
    """All of class 0 first, then class 1; inside a class as they were.

    >>> sort_by_label(np.array([1, 0, 1, 0])).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(labels, kind="stable")


def dirichlet_chunks(labels: Indices, delta: float, seed: int) -> Indices:
    """Runs of labels whose length Dirichlet(delta) draws (Gong 2022, NOTE; Yuan 2023, RoTTA).

    As many chunks as classes. Each class spreads over the chunks in parts drawn from
    Dirichlet(delta, ..., delta): a small delta leaves it in one chunk, a large one spreads it
    evenly. Inside a chunk the classes come one after another, in random order.
    """
    random = np.random.default_rng(seed)
    classes = np.unique(labels)
    chunks: list[list[Indices]] = [[] for _ in classes]
    for label in classes:
        members = np.flatnonzero(labels == label)
        shares = random.dirichlet(np.full(len(classes), delta))
        cuts = np.rint(np.cumsum(shares[:-1]) * len(members)).astype(np.int64)
        for chunk, few in zip(chunks, np.split(members, cuts), strict=True):
            chunk.append(few)
    runs = [chunk[place] for chunk in chunks for place in random.permutation(len(classes))]
    return np.concatenate(runs)


def one_after_another(parts: int, images: Indices) -> list[Loader]:
    """A loader a part, each with the same images in the same order."""
    return [Loader(np.broadcast_to(np.int64(part), images.shape), images) for part in range(parts)]


def all_at_once(parts: int, images: Indices, seed: int) -> list[Loader]:
    """One loader with the images of all parts, shuffled."""
    count = parts * len(images)
    order = np.random.default_rng([seed, count]).permutation(count)
    return [Loader(order // len(images), images[order % len(images)])]


def correlate(loader: Loader, labels: Indices, delta: float | None, seed: int) -> Loader:
    """The loader's images in runs of one label.

    labels: (image,), of every part. delta: None sorts; a number draws Dirichlet chunks.
    """
    shown = labels[loader.images]
    order = sort_by_label(shown) if delta is None else dirichlet_chunks(shown, delta, seed)
    return Loader(loader.parts[order], loader.images[order])
