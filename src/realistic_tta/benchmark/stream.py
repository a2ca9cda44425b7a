"""The batches of a stream, read lazily from memory-mapped parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from realistic_tta.data.images import LabeledImages
from realistic_tta.errors import DataError, OptionError

from .orderings import Indices, Loader, Part
from .scenarios import SCENARIOS, StreamPlan

READ = 64  # images read at once, at least: single reads are slow


@dataclass(frozen=True, eq=False)
class StreamBatch:
    """images: (image, color, row, column) in [0, 1]. labels, parts: (image,).

    reset: whether the method is reset before this batch.
    """

    number: int
    images: Tensor
    labels: Tensor
    parts: Indices
    reset: bool


class Stream:
    """A plan applied to a dataset. parts: of the plan. contents: the images of each part."""

    def __init__(
        self, plan: StreamPlan, parts: Sequence[Part], contents: Sequence[LabeledImages]
    ) -> None:
        labels = _shared_labels(parts, contents)
        self.plan, self.parts, self.contents = plan, tuple(parts), contents
        self.loaders = plan.loaders(labels, len(parts))
        self.reset = SCENARIOS[plan.scenario].reset

    def images(self) -> int:
        """Number of images in the whole stream."""
        return sum(len(loader.images) for loader in self.loaders)

    def count(self, batch_size: int) -> int:
        """Number of batches; the last of each loader may be smaller."""
        return sum(-(-len(loader.images) // batch_size) for loader in self.loaders)

    def batches(self, batch_size: int, start: int = 0) -> Iterator[StreamBatch]:
        """Yields the batches from number `start` to the end."""
        if batch_size < 1:
            raise OptionError(f"batch size is {batch_size}; expected 1 or more")
        number = 0
        for loader in self.loaders:
            yield from self._batches_of(loader, batch_size, number, max(start - number, 0))
            number += -(-len(loader.images) // batch_size)

    def _batches_of(
        self, loader: Loader, size: int, number: int, passed: int
    ) -> Iterator[StreamBatch]:
        """number: of the loader's first batch. passed: batches to skip."""
        block = size * max(READ // size, 1)
        for begin in range(passed * size, len(loader.images), block):
            images, labels, parts = self._read(loader, slice(begin, begin + block))
            pieces = zip(images.split(size), labels.split(size), strict=True)
            for place, (few, few_labels) in enumerate(pieces, start=begin // size):
                reset = self.reset == "batch" or (self.reset == "loader" and place == 0)
                few_parts = parts[place * size - begin :][:size]
                yield StreamBatch(number + place, few, few_labels, few_parts, reset)

    def _read(self, loader: Loader, place: slice) -> tuple[Tensor, Tensor, Indices]:
        parts, chosen = loader.parts[place], loader.images[place]
        labels = self.contents[0].labels[chosen]  # the same in every part
        pixels = torch.from_numpy(self._take(parts, chosen)).permute(0, 3, 1, 2)
        images = pixels.to(torch.float32, memory_format=torch.contiguous_format).div_(255)
        return images, torch.from_numpy(labels), parts

    def _take(self, parts: Indices, chosen: Indices) -> NDArray[np.uint8]:
        """(image, row, column, color), each from its own part."""
        if parts[0] == parts[-1] and (parts == parts[0]).all():
            return self.contents[int(parts[0])].take(chosen)
        pieces = [(parts == part).nonzero()[0] for part in np.unique(parts)]
        taken = [self.contents[parts[places[0]]].take(chosen[places]) for places in pieces]
        images: NDArray[np.uint8] = np.concatenate(taken)
        return images[np.argsort(np.concatenate(pieces))]


def _shared_labels(parts: Sequence[Part], contents: Sequence[LabeledImages]) -> Indices:
    """The labels; raises unless every part has the same."""
    labels = contents[0].labels
    for part, images in zip(parts, contents, strict=True):
        if not np.array_equal(images.labels, labels):
            raise DataError(
                f"{part.corruption} at severity {part.severity} and {parts[0].corruption} at "
                f"severity {parts[0].severity} have different labels; expected the same images"
            )
    return labels
