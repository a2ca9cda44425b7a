"""lame: the network untouched, the batch's probabilities corrected (Boudiaf 2022).

Images with similar features are given similar labels. The output are log-probabilities: their
argmax is the corrected label, their softmax the corrected probability.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from .batch import Batch
from .checks import check_count, check_number
from .features import catching, feature_layer
from .outputs import find_logits, map_tensors, widen
from .untouched import UntouchedNetwork


@dataclass(frozen=True)
class LameSettings:
    """neighbours: the kernel is as wide as the mean distance to this neighbour, oneself the first.
    rounds: at most so many. tolerance: stop when the energy changes by less, relative to itself.
    features: name of the layer whose input to compare; by default the network's last Linear.
    """

    neighbours: int = 5  # Boudiaf 2022, the rbf kernel
    rounds: int = 100  # Boudiaf 2022, their program
    tolerance: float = 1e-8  # Boudiaf 2022, their program
    features: str | None = None

    # the same values on all three: Boudiaf 2022 choose them once
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {},
        "imagenet_c": {},
    }

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours)
        check_count("rounds", self.rounds)
        check_number("tolerance", self.tolerance, low=0)


class Lame(UntouchedNetwork):
    """Corrects each batch by itself; nothing is carried on, and `freeze` gives the source.

    One image has no neighbours and identical ones no distances: they keep the network's own
    prediction.
    """

    name = "lame"
    reason = "lame corrects the output and leaves the network as it was trained"
    settings_type = LameSettings
    settings: LameSettings

    def __init__(self, network: nn.Module, settings: LameSettings) -> None:
        super().__init__(network, settings)
        feature_layer(self.network, settings.features)  # raises, before any batch has come

    def predict(self, batch: Batch) -> Any:
        """The network's probabilities, made alike where its features are."""
        with catching(feature_layer(self.network, self.settings.features)) as caught:
            outputs = self.run(batch)
        logits = find_logits(outputs)
        kernel = affinity(widen(caught.features()), self.settings.neighbours)
        own = widen(logits).log_softmax(dim=1)
        corrected = own if kernel is None else self._correct(own.exp(), kernel)
        self.remember()
        return map_tensors(
            lambda tensor: corrected.to(tensor.dtype) if tensor is logits else tensor, outputs
        )

    def _correct(self, probabilities: Tensor, kernel: Tensor) -> Tensor:
        unary = -torch.log(probabilities + 1e-10)
        return laplacian_optimization(unary, kernel, self.settings.rounds, self.settings.tolerance)


def affinity(features: Tensor, neighbours: int) -> Tensor | None:
    """How alike images are: (image, feature) to (image, image); None if all distances are 0.

    kernel = exp(-distance ** 2 / (2 * width ** 2)), of features scaled to length 1;
    width = mean over images of the distance to the neighbour, the image itself being the first.
    """
    features = functional.normalize(features, dim=1)
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.kthvalue(min(neighbours, len(features)), dim=1).values  # (image,)
    width = nearest.mean()
    if not width > 0:
        return None
    return torch.exp(-(distances / width).square() / 2)


def laplacian_optimization(unary: Tensor, kernel: Tensor, rounds: int, tolerance: float) -> Tensor:
    """Logarithm of the labels Y that agree with the network and with each other, (image, class).

        repeat Y = softmax(-unary + kernel @ Y)         from Y = softmax(-unary)

    until the energy stands still, not before the third round (Boudiaf 2022).
    """
    labels, before = torch.softmax(-unary, dim=1), torch.inf
    for number in range(rounds):
        pairwise = kernel @ labels  # (image, class)
        log_labels = torch.log_softmax(pairwise - unary, dim=1)
        labels = log_labels.exp()
        now = energy(unary, pairwise, labels).item()
        if number > 1 and abs(now - before) <= tolerance * abs(before):
            break
        before = now
    return log_labels


def energy(unary: Tensor, pairwise: Tensor, labels: Tensor) -> Tensor:
    """Sum over images and classes of unary * Y - pairwise * Y + Y * log(Y)."""
    return (labels * (unary - pairwise + labels.clamp_min(1e-20).log())).sum()
