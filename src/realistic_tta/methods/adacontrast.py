"""adacontrast: pseudo-labels from neighbours, and contrast between views (Chen 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from realistic_tta.errors import InputError, ModelError, SettingError
from realistic_tta.functional.channel_statistics import ChannelStatistics, moving_average
from realistic_tta.layers.statistics_rules import (
    FixedStatistics,
    StatisticsRule,
    TrainingStatistics,
)

from .batch import Batch
from .checks import check_count, check_number
from .contrast import concentration, contrast, nearest_probabilities
from .features import catching, feature_layer
from .gradient_method import gradient
from .momentum_settings import count_classes
from .optimizers import SGD, Adam, Memory
from .outputs import find_logits, widen
from .ring import NewRows
from .views.batch_images import images_of, with_images
from .views.contrast_views import strong_view, weak_view
from .weight_average import follow
from .whole_network_method import SeededSettings, WholeNetworkMethod, generator_at


@dataclass(frozen=True)
class AdaContrastSettings(SeededSettings):
    """The settings of every method that trains, a seed, and these.

    temperature: of the contrast between views.
    key_momentum: what the key network keeps of itself at each step.
    queue_size: how many keys a view is contrasted with, and how many samples the bank remembers.
    neighbours: how many samples of the bank make a pseudo-label.
    refine_after: how many samples come first; until then the network's own predictions are used.
    statistics_momentum: weight of the current view in the running statistics, as in torch.
    features: name of the Linear layer whose input is the features; by default the last one.
    classes: how many classes the network tells apart; by default the outputs of that last one.
    """

    optimizer: Adam | SGD = SGD(lr=2e-4, momentum=0.9, nesterov=True, weight_decay=1e-4)
    temperature: float = 0.07  # Chen 2022, as MoCo
    key_momentum: float = 0.999  # Chen 2022, as MoCo
    queue_size: int = 16384  # Chen 2022
    neighbours: int = 10  # Chen 2022
    refine_after: int = 1024
    statistics_momentum: float = 0.1  # torch's
    features: str | None = None
    classes: int | None = None

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10_c": {},
        "cifar100_c": {},
        "imagenet_c": {},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("temperature", self.temperature, low=1e-6)
        for name in ("key_momentum", "statistics_momentum"):
            check_number(name, getattr(self, name), low=0, high=1)
        for name in ("queue_size", "neighbours", "refine_after"):
            check_count(name, getattr(self, name))
        if self.classes is not None:
            check_count("classes", self.classes)


@dataclass(frozen=True)
class Look:
    """What the network made of a view: logits, (image, class), and features, (image, feature)."""

    logits: Tensor
    features: Tensor


class AdaContrast(WholeNetworkMethod):
    """Trains all parameters with pseudo-labels and a contrast between two strong views.

        loss = cross-entropy(strong view, pseudo-label) + contrast(strong view, another's key)
               + concentration(strong view)

    The query network is trained; the key network is its slow average. Both run as in training:
    the query's running statistics follow what it sees, and it predicts with them, after the step.
    The key's would never be read; none are kept.

    Memory: `weights` is the query, `key` the key network. The bank holds features and probabilities
    of weak views, the queue keys and pseudo-labels of strong ones, (entry, ...); the oldest are
    overwritten. `samples` counts the images seen.
    """

    name = "adacontrast"
    needs_source = True
    settings_type = AdaContrastSettings
    settings: AdaContrastSettings

    @cached_property
    def classifier(self) -> nn.Linear:
        """The layer whose input is the features."""
        layer = feature_layer(self.network, self.settings.features)
        if not isinstance(layer, nn.Linear):
            raise SettingError(
                f'features="{self.settings.features}" is a {type(layer).__name__}; expected the '
                "name of a Linear layer, whose number of inputs is known before the first batch"
            )
        return layer

    def start(self) -> ChannelStatistics:
        """Running statistics go on from training's."""
        return self.source

    def at_start(self) -> Memory:
        """Query and key network are the source; the bank is empty, the queue random."""
        memory, running, size = super().at_start(), self.start(), self.settings.queue_size
        weights, generator = memory["weights"], generator_at(memory["generator_state"])
        features = self.classifier.in_features
        classes = self.settings.classes or count_classes(self.network)
        keys = torch.randn(
            size, features, generator=generator, device=generator.device, dtype=torch.float32
        )
        labels = torch.randint(classes, (size,), generator=generator, device=generator.device)
        return memory | {
            "key": weights.clone(),
            "target_mean": running.mean.clone(),
            "target_variance": running.variance.clone(),
            "bank_features": weights.new_zeros(size, features),
            "bank_probabilities": weights.new_zeros(size, classes),
            "queue_keys": functional.normalize(keys).to(weights),
            "queue_labels": labels.to(weights.device),
            # Of the host, which so knows what to do without waiting for a device.
            "samples": torch.zeros((), dtype=torch.int64, device="cpu"),
            "generator_state": generator.get_state(),
        }

    def learn(self, batch: Batch, memory: Memory) -> tuple[Any, Mapping[str, Tensor | NewRows]]:
        """Label the weak view; contrast two strong ones; step; predict the batch itself."""
        generator = generator_at(memory["generator_state"])
        weak, strong, other = self._views(batch, generator)
        running = ChannelStatistics(memory["target_mean"], memory["target_variance"])

        key = follow(memory["key"], memory["weights"], self.settings.key_momentum)
        with torch.no_grad(), self.trained.replaced(key):
            keys = self._look(other, self.unrecorded()).features
            remembered = self._look(weak, self.unrecorded())

        query, rules = memory["weights"].detach().requires_grad_(), self.batch_rules()
        with self.trained.replaced(query):
            with torch.no_grad():
                look, running = self._train(weak, running, self.batch_rules())
            labels = self._pseudo_labels(look, memory)
            look, running = self._train(strong, running, rules)
        loss = (
            functional.cross_entropy(look.logits, labels)
            + self._contrast(look.features, keys, labels, memory)
            + concentration(look.logits)
        )
        after = self.descend(memory, gradient(loss, query))
        with torch.no_grad():
            fixed = [FixedStatistics(each) for each in self.by_layer(running)]
            prediction = self.run_trained(batch, after["weights"], fixed)
        return prediction.outputs, {
            **after,
            **self._stored(memory, remembered, keys, labels),
            "target_mean": running.mean,
            "target_variance": running.variance,
            "source_weight": self.source_weight_after(rules),
            "key": key,
            "generator_state": generator.get_state(),
        }

    def _views(self, batch: Batch, generator: torch.Generator) -> list[Batch]:
        """A weak view and two strong ones."""
        try:
            images = images_of(batch)
        except InputError:
            self.run(batch)  # a layer that cannot take the batch has more to say
            raise
        views = (weak_view, strong_view, strong_view)
        return [with_images(batch, view(images, generator)) for view in views]

    def _look(self, batch: Batch, rules: Sequence[StatisticsRule]) -> Look:
        """One forward of the network as it stands."""
        with catching(self.classifier) as caught:
            outputs = self.run_with(batch, rules)
        logits, features = widen(find_logits(outputs)), widen(caught.features())
        self._check("features", features, "bank_features")
        self._check("logits", logits, "bank_probabilities")
        return Look(logits, features)

    def _train(
        self, batch: Batch, running: ChannelStatistics, rules: Sequence[TrainingStatistics]
    ) -> tuple[Look, ChannelStatistics]:
        """A look, and the running statistics after it, as torch's in train mode."""
        look = self._look(batch, rules)
        mean, variance = self.measured(rules, running)
        unbiased = ChannelStatistics(mean, variance * self.by_channel(corrections(rules, mean)))
        return look, moving_average(running, unbiased, self.settings.statistics_momentum)

    def _pseudo_labels(self, look: Look, memory: Memory) -> Tensor:
        """The network's own at first, then what its neighbours in the bank say: (image,)."""
        samples = int(memory["samples"])
        if samples < self.settings.refine_after:
            return look.logits.softmax(dim=1).argmax(dim=1)
        filled = min(samples, self.settings.queue_size)
        refined = nearest_probabilities(
            look.features,
            memory["bank_features"][:filled],
            memory["bank_probabilities"][:filled],
            self.settings.neighbours,
        )
        return refined.argmax(dim=1)

    def _contrast(self, queries: Tensor, keys: Tensor, labels: Tensor, memory: Memory) -> Tensor:
        return contrast(
            queries,
            keys,
            labels,
            queue_keys=memory["queue_keys"],
            queue_labels=memory["queue_labels"],
            temperature=self.settings.temperature,
        )

    def _stored(
        self, memory: Memory, look: Look, keys: Tensor, labels: Tensor
    ) -> dict[str, Tensor | NewRows]:
        """What enters bank and queue."""
        rows = {
            "bank_features": functional.normalize(look.features),
            "bank_probabilities": look.logits.softmax(dim=1),
            "queue_keys": functional.normalize(keys),
            "queue_labels": labels,
        }
        samples = int(memory["samples"])
        rings = {name: NewRows(memory[name], samples, new) for name, new in rows.items()}
        return {**rings, "samples": memory["samples"] + len(labels)}

    def _check(self, what: str, found: Tensor, bank: str) -> None:
        expected = self.get_buffer(bank).shape[1]
        if found.shape[1] != expected:
            raise ModelError(
                f"the network has {found.shape[1]} {what} an image, its Linear layers let expect "
                f"{expected}; name another layer, features=..., or give the number, classes=..."
            )


def corrections(rules: Sequence[TrainingStatistics], like: Tensor) -> Tensor:
    """What makes each layer's biased variance the unbiased one, count / (count - 1): (layer,)."""
    counts = [rule.count for rule in rules]
    return like.new_tensor([count / (count - 1) if count else 1.0 for count in counts])
