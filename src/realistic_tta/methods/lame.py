"""lame: the model untouched, the batch's probabilities corrected (Boudiaf 2022).

Images with similar features are given similar labels. The outputs are log-probabilities: their
argmax is the corrected label, their softmax the corrected probability.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import find_logits, replace_logits, widen
from realistic_tta.core.report import Report, untouched_report
from realistic_tta.core.settings import Count, NonNegative, Settings

from ._training.features import capturing, feature_layer


@dataclass(frozen=True)
class Lame(Settings):
    """The hyperparameters of lame.

    Args:
        neighbors: the kernel is as wide as the mean distance to this neighbor, the image itself
            being the first.
        max_iterations: the largest number of iterations.
        tolerance: stop when the energy changes by less than this, relative to itself.
        features: the name of the layer whose input to compare; by default the last Linear layer.

    >>> from realistic_tta import Lame, adapt
    >>> adapted = adapt(nn.Linear(8, 3), Lame(neighbors=3))
    """

    neighbors: Count = 5  # Boudiaf 2022, the rbf kernel
    max_iterations: Count = 100  # Boudiaf 2022, their program
    tolerance: NonNegative = 1e-8  # Boudiaf 2022, their program
    features: str | None = None

    # the same values on all three: Boudiaf 2022 choose them once
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {},
        "imagenet_c": {},
    }


class LameModel(AdaptedModel):
    """Corrects each batch by itself; nothing is carried on, and `freeze` returns the source.

    A single image has no neighbors and identical images no distances: they keep the model's own
    prediction.
    """

    name = "lame"
    settings_type = Lame
    _settings: Lame

    def __init__(self, model: nn.Module, settings: Lame) -> None:
        super().__init__(model, settings)
        self.__dict__["_classifier"] = feature_layer(model, settings.features)  # the model owns it
        self._register_state()

    def _initial_state(self) -> State:
        return {"batches": self._zero_batches()}

    def _predict(self, batch: Batch) -> Prediction:
        """The model's probabilities, made similar where its features are."""
        with capturing(self._classifier) as captured:
            outputs = self._run(batch)
        log_probabilities = widen(find_logits(outputs)).log_softmax(dim=1)
        kernel = affinity(captured.features(), self._settings.neighbors)
        if kernel is not None:
            log_probabilities = self._correct(log_probabilities.exp(), kernel)
        return self._after(replace_logits(outputs, log_probabilities))

    def _correct(self, probabilities: Tensor, kernel: Tensor) -> Tensor:
        unary = -torch.log(probabilities + 1e-10)
        iterations, tolerance = self._settings.max_iterations, self._settings.tolerance
        return laplacian_optimization(unary, kernel, iterations, tolerance)

    def freeze(self) -> nn.Module:
        """A copy of the model."""
        return copy.deepcopy(self._model)

    def report(self) -> Report:
        """Every normalization layer, all of them skipped."""
        reason = "lame corrects the output and leaves the model as trained"
        return untouched_report(self.name, int(self._batches), self._model, reason)


def affinity(features: Tensor, neighbors: int) -> Tensor | None:
    """How similar images are: (image, feature) to (image, image); None if all distances are 0.

    kernel = exp(-distance ** 2 / (2 * width ** 2)), of features scaled to length 1;
    width = mean over images of the distance to the neighbor, the image itself being the first.
    """
    features = functional.normalize(features, dim=1)
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.kthvalue(min(neighbors, len(features)), dim=1).values  # (image,)
    width = nearest.mean()
    if not width > 0:
        return None
    return torch.exp(-(distances / width).square() / 2)


def laplacian_optimization(
    unary: Tensor, kernel: Tensor, iterations: int, tolerance: float
) -> Tensor:
    """Logarithm of the labels Y that agree with the model and with each other, (image, class).

        repeat Y = softmax(-unary + kernel @ Y)         from Y = softmax(-unary)

    until the energy no longer changes, not before the third iteration (Boudiaf 2022).
    """
    labels, before = torch.softmax(-unary, dim=1), torch.inf
    for number in range(iterations):
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
