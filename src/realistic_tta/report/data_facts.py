"""What Eq. 5 must know of a data set: its classes, and the batch size its networks trained with."""

from __future__ import annotations

from typing import NamedTuple


class DataFacts(NamedTuple):
    """title: as the paper writes it."""

    title: str
    classes: int
    source_batch_size: int


PAPERS = {  # the paper's three
    "cifar10-c": DataFacts("CIFAR-10-C", 10, 128),
    "cifar100-c": DataFacts("CIFAR-100-C", 100, 128),
    "imagenet-c": DataFacts("ImageNet-C", 1000, 256),
}
FACTS = PAPERS | {"cifar10-c-sample": DataFacts("CIFAR-10-C, the package's 2,000 images", 10, 128)}
