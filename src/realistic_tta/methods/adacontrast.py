"""adacontrast: pseudo-labels from neighbors, and contrast between views (Chen 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from realistic_tta.core.adapted_model import AdaptedModel, Prediction, State
from realistic_tta.core.batch import Batch
from realistic_tta.core.classes import count_classes
from realistic_tta.core.report import Report
from realistic_tta.core.settings import Bounds, Count, Probability
from realistic_tta.core.target_state import target_of
from realistic_tta.errors import ModelError, OptionError
from realistic_tta.functional.channel_statistics import ChannelStatistics, moving_average
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import FixedStatistics, StatisticsRule, TrainingStatistics

from ._training.features import capturing, feature_layer
from ._training.losses import concentration, contrast, nearest_probabilities
from ._training.optimizers import SGD, Adam
from ._training.trainer import (
    Forward,
    SeededTrainingSettings,
    Trainer,
    all_layers,
    generator_from,
    train_steps,
)
from ._training.views.contrast_views import strong_view, weak_view
from ._training.views.images import view_images
from ._training.weight_average import follow


@dataclass(frozen=True)
class AdaContrast(SeededTrainingSettings):
    """The hyperparameters of adacontrast, beside those of every method that trains.

    Args:
        temperature: of the contrast between views.
        key_momentum: the weight of the past in the key model at each step.
        queue_size: how many keys a view is contrasted with, and the size of the bank.
        neighbors: how many entries of the bank make a pseudo-label.
        refine_after: how many images come before pseudo-labels are refined by the bank.
        statistics_momentum: the weight of the current view in the running statistics, as in torch.
        features: the name of the Linear layer whose input is the features; by default the last one.
        classes: the number of classes; by default the outputs of the last Linear layer.

    >>> from realistic_tta import AdaContrast, adapt
    >>> model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(48), nn.Linear(48, 3))
    >>> adapted = adapt(model, AdaContrast(queue_size=1024))
    """

    optimizer: Adam | SGD = SGD(lr=2e-4, momentum=0.9, nesterov=True, weight_decay=1e-4)
    temperature: Annotated[float, Bounds(1e-6)] = 0.07  # Chen 2022, as MoCo
    key_momentum: Probability = 0.999  # Chen 2022, as MoCo
    queue_size: Count = 16384  # Chen 2022
    neighbors: Count = 10  # Chen 2022
    refine_after: Count = 1024
    statistics_momentum: Probability = 0.1  # torch's
    features: str | None = None
    classes: Count | None = None

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {},
        "imagenet_c": {},
    }


@dataclass(frozen=True)
class View:
    """A forward pass over a view, with the features that reached the classifier."""

    forward: Forward
    features: Tensor  # (image, feature)

    @property
    def logits(self) -> Tensor:
        """(image, class)."""
        return self.forward.logits


class AdaContrastModel(AdaptedModel):
    """Trains all parameters with pseudo-labels and a contrast between two strong views.

        loss = cross-entropy(strong view, pseudo-label) + contrast(strong view, another's key)
               + concentration(strong view)

    The query model is trained; the key model is its slow average. Both run as in training: the
    query's running statistics follow its inputs, and it predicts with them, after the step.

    In the state, `weights` is the query and `key` the key model. The bank holds features and
    probabilities of weak views, the queue keys and pseudo-labels of strong ones, (entry, ...); the
    oldest are overwritten. `samples` counts the images.
    """

    name = "adacontrast"
    settings_type = AdaContrast
    _settings: AdaContrast

    def __init__(self, model: nn.Module, settings: AdaContrast) -> None:
        trained = all_layers(model, self.name)
        model, layers = AdaptiveLayers.replace(model, self.name, required=False)
        super().__init__(model, settings)
        self._layers = layers
        self._trainer = Trainer(model, layers, trained, settings.optimizer)
        self._classes = settings.classes or count_classes(model)
        classifier = feature_layer(model, settings.features)
        if not isinstance(classifier, nn.Linear):
            raise OptionError(
                f'features="{settings.features}" is a {type(classifier).__name__}; expected the '
                "name of a Linear layer, whose number of inputs is known before the first batch"
            )
        self.__dict__["_classifier"] = classifier  # the model owns it
        self._register_state()

    def _initial_state(self) -> State:
        """Query and key model are the source; the bank is empty, the queue random."""
        state, size = self._trainer.initial_state(from_source=True), self._settings.queue_size
        weights, features = state["weights"], self._classifier.in_features
        generator = torch.Generator("cpu").manual_seed(self._settings.seed)
        on_cpu: Any = {"generator": generator, "device": generator.device}
        keys = torch.randn(size, features, dtype=torch.float32, **on_cpu)
        labels = torch.randint(self._classes, (size,), **on_cpu)
        return state | {
            "key": weights.clone(),
            "bank_features": weights.new_zeros(size, features),
            "bank_probabilities": weights.new_zeros(size, self._classes),
            "queue_keys": functional.normalize(keys).to(weights),
            "queue_labels": labels.to(weights.device),
            # On the host, which then need not wait for a device to know it.
            "samples": torch.zeros((), dtype=torch.int64, device="cpu"),
            "generator_state": generator.get_state(),
        }

    def _predict(self, batch: Batch) -> Prediction:
        state = self._initial_state() if self._settings.episodic else self._state()
        outputs, state = train_steps(self._learn, batch, state, self._settings)
        return self._after(outputs, **state)

    def _learn(self, batch: Batch, state: State) -> tuple[Any, State]:
        """Label the weak view; contrast two strong ones; step; predict the batch itself."""
        trainer, generator = self._trainer, generator_from(state["generator_state"])
        images = view_images(batch)
        weak, strong, other = (
            batch.with_images(view(images, generator))
            for view in (weak_view, strong_view, strong_view)
        )
        key = follow(state["key"], state["weights"], self._settings.key_momentum)
        with torch.no_grad():
            keys = self._see(other, key, trainer.unrecorded()).features
            remembered = self._see(weak, key, trainer.unrecorded())
            labeled, running = self._see_and_follow(weak, state["weights"], target_of(state))
        labels = self._pseudo_labels(labeled, state)
        query, running = self._see_and_follow(strong, state["weights"], running)
        loss = (
            functional.cross_entropy(query.logits, labels)
            + self._contrast(query.features, keys, labels, state)
            + concentration(query.logits)
        )
        after = trainer.step(state, query.forward.gradient(loss))
        fixed = [FixedStatistics(each) for each in self._layers.split(running)]
        with torch.no_grad():
            prediction = trainer.forward(batch, after["weights"], fixed)
        return prediction.outputs, {
            **after,
            **self._stored(state, remembered, keys, labels),
            **trainer.measured(query.forward, state),
            "target_mean": running.mean,
            "target_variance": running.variance,
            "key": key,
            "generator_state": generator.get_state(),
        }

    def _see(self, batch: Batch, weights: Tensor, rules: Sequence[StatisticsRule]) -> View:
        """One forward pass with these weights, and the features."""
        with capturing(self._classifier) as captured:
            forward = self._trainer.forward(batch, weights, rules)
        view = View(forward, captured.features())
        self._check("features", view.features, self._classifier.in_features)
        self._check("logits", view.logits, self._classes)
        return view

    def _see_and_follow(
        self, batch: Batch, weights: Tensor, running: ChannelStatistics
    ) -> tuple[View, ChannelStatistics]:
        """The same, and the running statistics after it, as torch's in train mode."""
        rules = self._trainer.batch_statistics()
        view = self._see(batch, weights, rules)
        mean, variance = self._layers.collect_target(rules, running)
        correction = self._layers.per_channel(unbiased_factors(rules, mean))
        unbiased = ChannelStatistics(mean, variance * correction)
        return view, moving_average(running, unbiased, self._settings.statistics_momentum)

    def _pseudo_labels(self, view: View, state: State) -> Tensor:
        """The model's own predictions at first, then those of the neighbors in the bank."""
        samples = int(state["samples"])
        if samples < self._settings.refine_after:
            return view.logits.argmax(dim=1)
        filled = min(samples, self._settings.queue_size)
        refined = nearest_probabilities(
            view.features,
            state["bank_features"][:filled],
            state["bank_probabilities"][:filled],
            self._settings.neighbors,
        )
        return refined.argmax(dim=1)

    def _contrast(self, queries: Tensor, keys: Tensor, labels: Tensor, state: State) -> Tensor:
        return contrast(
            queries,
            keys,
            labels,
            queue_keys=state["queue_keys"],
            queue_labels=state["queue_labels"],
            temperature=self._settings.temperature,
        )

    def _stored(self, state: State, view: View, keys: Tensor, labels: Tensor) -> State:
        """Bank and queue with the new entries."""
        new = {
            "bank_features": functional.normalize(view.features),
            "bank_probabilities": view.logits.softmax(dim=1),
            "queue_keys": functional.normalize(keys),
            "queue_labels": labels,
        }
        samples = int(state["samples"])
        rings = {name: overwrite_oldest(state[name], samples, rows) for name, rows in new.items()}
        return {**rings, "samples": state["samples"] + len(labels)}

    def _check(self, what: str, found: Tensor, expected: int) -> None:
        if found.shape[1] != expected:
            raise ModelError(
                f"the model has {found.shape[1]} {what} per image, expected {expected} from its "
                "Linear layers; name another layer, features=..., or pass the number, classes=..."
            )

    def freeze(self) -> nn.Module:
        """A plain copy of the model with the trained weights and running statistics."""
        return self._trainer.freeze(self._state(), self._state()["weights"])

    def report(self) -> Report:
        """Every adapted layer, and the parameters that are trained."""
        return self._trainer.report(self.name, self._state())


def overwrite_oldest(ring: Tensor, written: int, rows: Tensor) -> Tensor:
    """A copy of the ring, (entry, ...), with new rows in the places of the oldest.

    written: how many rows were written before.

    >>> ring, rows = torch.zeros(3, device="cpu"), torch.tensor([1.0, 2.0], device="cpu")
    >>> overwrite_oldest(ring, 2, rows).tolist()
    [2.0, 0.0, 1.0]
    """
    size, count = len(ring), len(rows)
    places = torch.arange(written + max(0, count - size), written + count, device=ring.device)
    return ring.index_copy(0, places % size, rows[max(0, count - size) :].to(ring))


def unbiased_factors(rules: Sequence[TrainingStatistics], like: Tensor) -> Tensor:
    """The factor from the biased to the unbiased variance, count / (count - 1): (layer,)."""
    counts = [rule.count for rule in rules]
    return like.new_tensor([count / (count - 1) if count else 1.0 for count in counts])
