"""adacontrast against its recipe in plain torch: two models in train mode, lists, a loop."""

from __future__ import annotations

import copy

import pytest
import torch
from methods.method_state import method_state
from subjects import (
    convolutional,
    images,
    on_cpu,
    same,
    signal,
    signals,
    snapshot,
    stream,
)
from torch import Tensor, nn
from torch.nn import functional

from realistic_tta import ModelError, OptionError, adapt
from realistic_tta.errors import InputError
from realistic_tta.functional.channel_statistics import measure
from realistic_tta.layers.adaptive_batch_norm import AdaptiveBatchNorm, RuleSlot
from realistic_tta.layers.rules import TrainingStatistics
from realistic_tta.methods._training.optimizers import SGD
from realistic_tta.methods._training.views.contrast_views import strong_view, weak_view
from realistic_tta.methods.adacontrast import AdaContrast, overwrite_oldest, unbiased_factors
from realistic_tta.methods.registry import preset_options

SMALL = {"queue_size": 12, "refine_after": 9, "neighbors": 3}


def train_mode(model: nn.Module) -> nn.Module:
    """BatchNorms as in training, all else (dropout) as in eval mode."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
    return model


class PlainAdaContrast:
    """The recipe, one image at a time where it is about images; bank and queue are lists."""

    def __init__(self, model: nn.Module, start: dict[str, Tensor]) -> None:
        self.query, self.key = copy.deepcopy(model), copy.deepcopy(model)
        self.optimizer = torch.optim.SGD(
            self.query.parameters(), lr=2e-4, momentum=0.9, nesterov=True, weight_decay=1e-4
        )
        self.generator = torch.Generator()
        self.generator.set_state(start["generator_state"])
        keys, labels = start["queue_keys"], start["queue_labels"]
        self.queue = list(zip(keys.clone(), labels.tolist(), strict=True))
        self.bank: list[tuple[Tensor, Tensor]] = []
        self.seen = 0
        self.refined = False

    def __call__(self, batch: Tensor) -> Tensor:
        weak, strong, other = (
            view(batch, self.generator) for view in (weak_view, strong_view, strong_view)
        )
        train_mode(self.query)
        train_mode(self.key)
        with torch.no_grad():
            labels = self.labels(weak)
        features, logits = look(self.query, strong)
        with torch.no_grad():
            for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
                slow.copy_(0.999 * slow + 0.001 * fast)
            keys, _ = look(self.key, other)
        loss = self.loss(features, logits, keys, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            self.remember(weak, keys, labels)
            prediction: Tensor = self.query.eval()(batch)
        return prediction

    def labels(self, weak: Tensor) -> list[int]:
        features, logits = look(self.query, weak)
        self.refined = self.seen >= SMALL["refine_after"]
        if not self.refined:
            return [int(each.argmax()) for each in logits]
        labels = []
        for feature in features:
            nearest = sorted(
                self.bank,
                key=lambda entry: -float(functional.cosine_similarity(feature, entry[0], 0)),
            )
            mean = torch.stack([p for _, p in nearest[: SMALL["neighbors"]]]).mean(dim=0)
            labels.append(int(mean.argmax()))
        return labels

    def loss(self, features: Tensor, logits: Tensor, keys: Tensor, labels: list[int]) -> Tensor:
        losses = []
        for feature, own, label in zip(features, keys, labels, strict=True):
            others = [entry for entry, other in self.queue if other != label]
            cosines = [functional.cosine_similarity(feature, each, 0) for each in (own, *others)]
            similar = torch.stack(cosines) / 0.07
            losses.append(torch.logsumexp(similar, 0) - similar[0])
        p = logits.softmax(dim=1).mean(dim=0)
        labelled = -logits.log_softmax(dim=1)[range(len(labels)), labels].mean()
        return labelled + torch.stack(losses).mean() + (p * (p + 1e-8).log()).sum()

    def remember(self, weak: Tensor, keys: Tensor, labels: list[int]) -> None:
        features, logits = look(self.key, weak)
        self.queue = [*self.queue, *zip(keys, labels, strict=True)][-SMALL["queue_size"] :]
        self.bank = [*self.bank, *zip(features, logits.softmax(dim=1), strict=True)]
        self.bank = self.bank[-SMALL["queue_size"] :]
        self.seen += len(weak)


def look(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Features, the input of the last layer, and logits."""
    *body, head = model.children()
    features = nn.Sequential(*body)(batch)
    return features, head(features)


def test_a_stream_is_the_recipe_in_plain_torch() -> None:
    """Until labels are refined and after, past the end of bank and queue, at batch size 1 too."""
    model = convolutional()
    adapted = adapt(model, "adacontrast", **SMALL)  # type: ignore[arg-type]
    plain = PlainAdaContrast(model, method_state(adapted))
    refined = []
    for batch in stream([5, 6, 1, 8, 15, 3, 2]):
        torch.testing.assert_close(adapted(batch), plain(batch), atol=1e-5, rtol=1e-4)
        refined.append(plain.refined)
    assert refined == [False, False, *[True] * 5]
    for name, model in (("weights", plain.query), ("key", plain.key)):
        expected = nn.utils.parameters_to_vector(model.parameters())
        torch.testing.assert_close(method_state(adapted)[name], expected, atol=1e-6, rtol=0)
    running = [module for module in plain.query.modules() if isinstance(module, nn.BatchNorm2d)]
    for name, own in (("target_mean", "running_mean"), ("target_variance", "running_var")):
        expected = torch.cat([layer.get_buffer(own) for layer in running])
        torch.testing.assert_close(method_state(adapted)[name], expected, atol=1e-5, rtol=1e-4)
    assert same_set(method_state(adapted)["queue_labels"], [label for _, label in plain.queue])
    assert int(method_state(adapted)["samples"]) == 40


def same_set(labels: Tensor, expected: list[int]) -> bool:
    return sorted(labels.tolist()) == sorted(expected)


def test_unbiased_variances_count_all_uses_of_a_layer_in_a_pass_as_one_batch() -> None:
    first, second = torch.randn(3, 2, 4), torch.randn(5, 2, 4) + 1
    slot = RuleSlot()
    with on_cpu():
        layer = AdaptiveBatchNorm(nn.BatchNorm1d(2).eval(), "0", slot, 0)
    used, unused = TrainingStatistics(), TrainingStatistics()
    slot.rules = [used, unused]
    layer(first)
    layer(second)
    assert used.target is not None
    factors = unbiased_factors([used, unused], used.target.variance)
    together = measure(torch.cat([first, second]), correction=1)
    torch.testing.assert_close(used.target.variance * factors[0], together.variance)
    assert factors[1] == 1


def test_the_frozen_copy_predicts_what_the_method_just_did() -> None:
    """The prediction comes after the step, with running statistics: a plain model has both."""
    adapted = adapt(convolutional(), "adacontrast")
    for batch in stream([8, 4]):
        logits = adapted(batch)
        torch.testing.assert_close(adapted.freeze()(batch).detach(), logits, atol=1e-6, rtol=1e-5)


def test_five_passes_a_batch_and_no_more() -> None:
    passes = 0

    def count(*_: object) -> None:
        nonlocal passes
        passes += 1

    model = convolutional()
    model.register_forward_hook(count)
    adapt(model, "adacontrast", queue_size=6)(images(4))
    assert passes == 5


def test_the_queue_starts_as_unit_vectors_with_labels_of_every_class() -> None:
    adapted = adapt(convolutional(), "adacontrast")
    keys, labels = method_state(adapted)["queue_keys"], method_state(adapted)["queue_labels"]
    assert keys.shape == (16384, 16)
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(16384))
    assert keys.mean(dim=0).abs().max() < 0.02
    assert labels.bincount(minlength=5).tolist() == pytest.approx([16384 / 5] * 5, rel=0.1)
    other = adapt(convolutional(), "adacontrast", seed=1)
    assert not torch.equal(method_state(other)["queue_keys"], keys)


def test_settings_are_the_published_ones_on_every_data_set() -> None:
    found = AdaContrast()
    for preset in ("cifar10_c", "cifar100_c", "imagenet_c"):
        assert AdaContrast(**preset_options("adacontrast", preset)) == found
    assert found.optimizer == SGD(lr=2e-4, momentum=0.9, nesterov=True, weight_decay=1e-4)
    assert (found.temperature, found.key_momentum) == (0.07, 0.999)
    assert (found.queue_size, found.neighbors, found.refine_after) == (16384, 10, 1024)


def test_features_can_be_named_and_wrong_names_are_answered() -> None:
    with on_cpu():
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=4), nn.Flatten(), nn.Linear(36, 7), nn.ReLU(), nn.Linear(7, 5)
        )
    adapted = adapt(model, "adacontrast", features="2", queue_size=6)
    assert adapted(images(3)).shape == (3, 5)
    assert method_state(adapted)["bank_features"].shape == (6, 36)
    assert method_state(adapted)["bank_probabilities"].shape == (6, 5)
    with pytest.raises(OptionError, match=r'"0" is a Conv2d; expected .* a Linear layer'):
        adapt(model, "adacontrast", features="0")
    with pytest.raises(OptionError, match="unknown layer"):
        adapt(model, "adacontrast", features="head")
    with pytest.raises(ModelError, match="no Linear layer"):
        adapt(nn.Sequential(nn.Conv2d(3, 5, 12), nn.Flatten()), "adacontrast", classes=5)
    wrong = adapt(model, "adacontrast", classes=4, queue_size=6)
    before = snapshot(wrong)
    with pytest.raises(ModelError, match=r"5 logits per image, expected 4"):
        wrong(images(2))
    assert same(before, snapshot(wrong))


def test_other_inputs_than_images_are_refused() -> None:
    adapted = adapt(signal(), "adacontrast", queue_size=6)
    before = snapshot(adapted)
    with pytest.raises(InputError, match=r"has shape \(3, 2, 40\).*1 or 3 channels"):
        adapted(signals(3))
    assert same(before, snapshot(adapted))


def test_one_value_per_channel_names_the_layer_and_changes_nothing() -> None:
    with on_cpu():
        model = nn.Sequential(nn.Conv2d(3, 4, 12), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 5))
    adapted = adapt(model, "adacontrast", queue_size=6)
    adapted(images(2))
    before = snapshot(adapted)
    with pytest.raises(InputError, match=r'layer "1".*no variance'):
        adapted(images(1))
    assert same(before, snapshot(adapted))


def test_a_layer_without_statistics_from_training_is_refused() -> None:
    model = nn.Sequential(
        nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten(), nn.Linear(432, 5)
    )
    with pytest.raises(ModelError, match="track_running_stats=False"):
        adapt(model, "adacontrast")


def test_a_wrapped_model_is_named_as_without_the_wrapper() -> None:
    model = nn.DataParallel(convolutional())
    assert adapt(model, "adacontrast", features="12")(images(2)).shape == (2, 5)


def test_an_episode_knows_nothing_of_the_one_before() -> None:
    adapted = adapt(convolutional(), "adacontrast", episodic=True, queue_size=6, steps=2)
    first = adapted(images(4))
    adapted(images(4, seed=1))
    assert torch.equal(adapted(images(4)), first)


def test_two_steps_on_a_batch_are_two_batches_of_one_step() -> None:
    twice = adapt(convolutional(), "adacontrast", steps=2, **SMALL)  # type: ignore[arg-type]
    once = adapt(convolutional(), "adacontrast", **SMALL)  # type: ignore[arg-type]
    once(images(4))
    assert torch.equal(twice(images(4)), once(images(4)))
    one, other = method_state(once), method_state(twice)
    assert {name for name in one if not torch.equal(one[name], other[name])} == {"batches"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"temperature": 0}, "temperature is 0"),
        ({"key_momentum": 2}, "key_momentum is 2; expected a number from 0 to 1"),
        ({"queue_size": 0}, "queue_size is 0"),
        ({"refine_after": 0}, "refine_after is 0"),
        ({"classes": 0}, "classes is 0"),
        ({"seed": 0.5}, "seed is 0.5"),
    ],
    ids=str,
)
def test_wrong_hyperparameters_raise(setting: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        adapt(convolutional(), "adacontrast", **setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [[3, 3, 3], [1] * 20, [7], [2, 16, 5], [9, 8, 7, 0, 1]], ids=str)
def test_a_ring_holds_the_last_rows_in_their_places(sizes: list[int]) -> None:
    """Against a list that grows without end; the ring passed in stays as it is."""
    ring, seen = torch.full((7, 2), -1.0), 0
    everything: list[Tensor] = []
    for size in sizes:
        rows = torch.arange(seen, seen + size).float()[:, None].repeat(1, 2)
        before = ring.clone()
        after = overwrite_oldest(ring, seen, rows)
        assert torch.equal(ring, before)
        ring = after
        everything += list(rows)
        seen += size
        expected = torch.full((7, 2), -1.0)
        for number in range(max(0, seen - 7), seen):
            expected[number % 7] = everything[number]
        assert torch.equal(ring, expected)
