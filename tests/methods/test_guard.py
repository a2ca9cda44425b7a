"""The guard: what it notices, what it lets pass, and what happens then."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot
from torch import Tensor, nn

import realistic_tta
from realistic_tta import AdaptedNetwork, SettingError, adapt
from realistic_tta.datasets.corruptions import corrupt
from realistic_tta.datasets.sample import load_sample
from realistic_tta.errors import NotFiniteError
from realistic_tta.methods.catalogue import guarded
from realistic_tta.methods.guard import Guard, GuardSettings, information
from realistic_tta.networks.checkpoints import load_network
from realistic_tta.normalization.replicas import Replicas

CLASSES = 4


def telling() -> nn.Module:
    """Says of each row of `rows` which one it is."""
    with on_cpu():
        network = nn.Sequential(nn.BatchNorm1d(CLASSES)).eval()
        nn.init.constant_(network.get_parameter("0.weight"), 9.0)
    return network


def rows(count: int) -> Tensor:
    return torch.eye(CLASSES, device="cpu").repeat(math.ceil(count / CLASSES), 1)[:count]


def watched(method: str = "tent", **settings: Any) -> AdaptedNetwork:
    adapted = adapt(telling(), method)
    adapted.guard = Guard(GuardSettings(**{"window": 8, "rest": 16, **settings}))
    return adapted


def lose_the_way(adapted: AdaptedNetwork) -> None:
    """From now on all images look alike."""
    adapted.get_buffer("weights").zero_()


def foggy(count: int, severity: int = 5) -> Tensor:
    photographs = load_sample().images[:count]
    corrupted = corrupt(photographs, "fog", severity, generator=np.random.default_rng(0))
    return torch.from_numpy(corrupted).permute(0, 3, 1, 2) / 255


def test_information_is_the_mean_divergence_from_the_mean_prediction() -> None:
    """Mutual information, by its other definition and a plain loop."""
    logits = torch.randn(7, 5, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
    predictions = logits.double().softmax(dim=1)
    mean = predictions.mean(dim=0)
    expected = 0.0
    for prediction in predictions:
        expected += sum(float(p * math.log(p / m)) for p, m in zip(prediction, mean, strict=True))
    assert information(logits) == pytest.approx(expected / 7, abs=1e-6)


def test_a_method_that_lost_its_way_is_reset_and_the_source_answers() -> None:
    adapted, network = watched(), telling()
    start = snapshot(adapted)
    lose_the_way(adapted)
    with torch.no_grad():
        expected = network(rows(8))
    for _ in range(3):  # the batch it is noticed on, and 16 images of rest
        assert torch.equal(adapted(rows(8)), expected)
        assert same(start, snapshot(adapted))
    assert adapted.health().resets == 1
    assert not torch.equal(adapted(rows(8)), expected)
    assert int(adapted.step) == 1


def test_a_rest_doubles_with_each_fall_that_comes_early(caplog: pytest.LogCaptureFixture) -> None:
    adapted = watched()
    rests = []
    with caplog.at_level(logging.WARNING, logger="realistic_tta"):
        for _ in range(3):
            lose_the_way(adapted)
            adapted(rows(8))
            assert adapted.guard is not None
            rests.append(adapted.guard.resting)
            while adapted.guard.resting > 0:
                adapted(rows(8))
    assert rests == [16, 32, 64]
    assert caplog.text.count("tent was reset") == 3


def test_a_fall_after_a_long_time_needs_no_rest() -> None:
    adapted = watched()
    for _ in range(2):
        adapted(rows(8))
    lose_the_way(adapted)
    adapted(rows(8))
    assert adapted.guard is not None
    assert (adapted.health().resets, adapted.guard.resting) == (1, 0)
    adapted(rows(8))
    assert int(adapted.step) == 1


def test_small_batches_are_judged_together_and_copied() -> None:
    """The caller uses one tensor for all; the window still holds eight different images."""
    adapted = watched()
    lose_the_way(adapted)
    buffer = torch.empty(2, CLASSES, device="cpu")
    for number in range(4):
        assert adapted.health().resets == 0
        buffer.copy_(rows(8)[number * 2 : number * 2 + 2])
        adapted(buffer)
    assert adapted.health().resets == 1


class Counted(nn.Module):
    """Counts its forwards."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.calls = inner, 0

    def forward(self, batch: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.inner(batch)
        return logits


def test_a_stream_of_one_class_is_no_fall_and_the_source_is_seldom_asked() -> None:
    """The source cannot tell these images apart either."""
    network = Counted(telling())
    adapted = adapt(network, "tent")
    adapted.guard = Guard(GuardSettings(window=8, acquitted=4))
    for _ in range(10):
        adapted(rows(1).repeat(8, 1))
    assert adapted.health().resets == 0
    assert adapted.network.calls == 10 + 2  # of ten windows, the first and the sixth


def test_a_guard_that_sees_nothing_wrong_changes_nothing() -> None:
    plain, adapted = watched(), watched()
    plain.guard = None
    for _ in range(3):
        assert torch.equal(plain(rows(12)), adapted(rows(12)))
    assert same(snapshot(plain), snapshot(adapted))


def test_weights_that_are_not_finite_are_a_fall() -> None:
    adapted = watched()
    start = snapshot(adapted)
    adapted.get_buffer("weights").fill_(math.nan)
    with torch.no_grad():
        assert torch.equal(adapted(rows(8)), telling()(rows(8)))
    assert same(start, snapshot(adapted))


def test_faulty_images_are_none_of_the_guards_business() -> None:
    raising = adapt(telling(), "tent", guard=True, on_bad_input="raise")
    with pytest.raises(NotFiniteError):
        raising(rows(8) * math.nan)
    assert raising.health().resets == 0
    excluding = adapt(telling(), "tent", guard=True, bad_output="nan")
    for _ in range(8):
        batch = rows(8)
        batch[1, 2] = math.nan
        assert excluding(batch)[1].isnan().all()
    assert (excluding.health().resets, excluding.health().excluded) == (0, 8)


def test_a_reset_ends_the_rest() -> None:
    adapted = watched()
    lose_the_way(adapted)
    adapted(rows(8))
    adapted.reset()
    adapted(rows(8))
    assert int(adapted.step) == 1


def test_copies_are_watched_too(tmp_path: Any) -> None:
    adapted = watched()
    lose_the_way(adapted)
    adapted(rows(4))
    for other in (copy.deepcopy(adapted), pickle.loads(pickle.dumps(adapted))):  # noqa: S301
        other(rows(4))
        assert other.health().resets == 1
    adapted.save(tmp_path / "state")
    loaded = realistic_tta.load(tmp_path / "state", telling(), guard=True)
    for _ in range(4):
        loaded(rows(8))
    assert loaded.health().resets == 1


def test_outputs_without_logits_are_let_pass() -> None:
    with on_cpu():
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    adapted = adapt(network, "tbn", guard=True)
    assert adapted(images(40)).shape == (40, 4, 10, 10)


def test_replicas_take_no_guard() -> None:
    adapted = adapt(convolutional(), "tema")
    adapted.replicas = Replicas.__new__(Replicas)  # a group of processes takes seconds to make
    with pytest.raises(SettingError, match="guard=True and sync cannot go together"):
        guarded(adapted, guard=True)


@pytest.mark.parametrize("method", ["tent", "tbn"])
def test_one_photograph_at_a_time_is_left_to_the_source_after_a_window(method: str) -> None:
    """Statistics of single images are no use; 32 of them are enough to tell."""
    network, photographs = load_network("cifar10").eval(), foggy(40)
    adapted = adapt(network, method, guard=True)
    outputs = torch.cat([adapted(image) for image in photographs.split(1)])
    assert adapted.health().resets == 1
    with torch.no_grad():
        expected = torch.cat([network(image) for image in photographs[31:].split(1)])
    assert torch.equal(outputs[31:], expected)


@pytest.mark.parametrize("method", ["tent", "eta", "rectified_tema"])
def test_where_a_method_does_well_it_is_left_alone(method: str) -> None:
    adapted = adapt(load_network("cifar10"), method, guard=True)
    plain = adapt(load_network("cifar10"), method)
    for batch in foggy(100).split(50):
        assert torch.equal(adapted(batch), plain(batch))
    assert adapted.health().resets == 0
