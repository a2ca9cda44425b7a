"""The comparison of two models without labels, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from realistic_tta.functional.source_comparison import (
    advantage,
    comes_in_runs,
    information,
    rescale,
    spread,
)


def drawn(images: int, classes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(images, classes, generator=generator, device="cpu") * 3


def sure(labels: list[int], classes: int = 4) -> Tensor:
    return torch.eye(classes, device="cpu")[labels] * 27


def probabilities(logits: Tensor) -> list[list[float]]:
    rows: list[list[float]] = logits.double().softmax(dim=1).tolist()
    return rows


def entropy(probability: list[float]) -> float:
    return -sum(p * math.log(p) for p in probability)


def mean(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def test_the_advantage_is_that_of_a_plain_loop() -> None:
    adapted, source = drawn(40, 5), drawn(40, 5, seed=1) * 0.3
    ratio = float(spread(source) / spread(adapted))
    own, other = probabilities(adapted * ratio), probabilities(source)
    confidence = sum(map(entropy, other)) / 40 - sum(map(entropy, own)) / 40
    diversity = entropy(mean(own)) - entropy(mean(other))
    assert not comes_in_runs(source)
    assert entropy(mean(other)) > 0.75 * math.log(5)
    assert advantage(adapted, source) == pytest.approx(confidence + diversity, abs=1e-6)


def test_the_scale_of_the_logits_makes_no_difference() -> None:
    adapted, source = drawn(40, 5), drawn(40, 5, seed=1)
    for factor in (0.01, 0.5, 100.0):
        assert advantage(adapted * factor, source) == pytest.approx(
            advantage(adapted, source), abs=1e-5
        )
    assert spread(rescale(adapted, source)) == pytest.approx(float(spread(source)))


def test_constant_logits_are_worse() -> None:
    """All zeros have no spread to divide by."""
    assert advantage(torch.zeros(40, 5, device="cpu"), drawn(40, 5)) < -0.5


def test_an_outlier_does_not_decide_for_the_other_images() -> None:
    """The source has logits of thousands for it; the method, which normalizes it away, has not."""
    good, lost = sure([0, 1, 2, 3] * 8) / 5, drawn(32, 4)
    shown = torch.cat([good, 1000 * sure([1, 1])])
    with_it = advantage(torch.cat([lost, sure([1, 1]) / 5]), shown)
    assert with_it == pytest.approx(advantage(lost, good), abs=0.15)


def test_a_collapse_into_one_class_counts_in_full() -> None:
    source = sure([0, 1, 2, 3] * 8)
    assert advantage(sure([2] * 32), source) == pytest.approx(-math.log(4), abs=0.02)


@pytest.mark.parametrize(
    ("seen", "weight"), [([2], 0.15), ([1, 2], 0.15), ([0, 1, 2, 3], 0.15), ([0, 1, 2, 3, 4], 1)]
)
def test_more_classes_count_little_if_the_source_sees_few(seen: list[int], weight: float) -> None:
    """Three quarters of ln(8) lie between the entropies of four classes and of five."""
    partial = sure((seen * 40)[:40], classes=8)
    spread_out = sure(list(range(8)) * 5, classes=8)
    expected = weight * (math.log(8) - math.log(len(seen)))
    assert advantage(spread_out, partial) == pytest.approx(expected, abs=1e-3)


def test_more_classes_count_little_where_labels_come_in_runs() -> None:
    source = sure([0] * 16 + [1] * 16)
    assert comes_in_runs(source)
    expected = 0.15 * (math.log(4) - math.log(2))
    assert advantage(sure([0, 1, 2, 3] * 8), source) == pytest.approx(expected, abs=1e-3)


def test_many_classes_count_little_if_they_come_in_runs() -> None:
    source = sure([0] * 8 + [1] * 8 + [2] * 8)
    expected = 0.15 * (math.log(4) - math.log(3))
    assert advantage(sure([0, 1, 2, 3] * 6), source) == pytest.approx(expected, abs=1e-3)


def test_fewer_images_than_classes_can_show_many() -> None:
    """Sixteen images of sixteen classes are mixed, though there are a hundred classes."""
    source = sure(list(range(16)), classes=100)
    assert advantage(source, source) == 0
    two_alike = sure([*range(8), 0, *range(8, 15)], classes=100)
    assert advantage(source, two_alike) == pytest.approx(math.log(2) / 8, abs=1e-3)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3] * 8, [0] * 20 + [1] * 12, [1] * 32, [0, 0, 1] * 9])
def test_runs_are_found_as_by_looking_at_every_two_images(labels: list[int]) -> None:
    rows = probabilities(sure(labels) + drawn(len(labels), 4) / 9)
    count = len(rows)

    def alike(one: int, other: int) -> float:
        return sum(p * q for p, q in zip(rows[one], rows[other], strict=True))

    neighbors = sum(alike(i, i + 1) for i in range(count - 1)) / (count - 1)
    others = [alike(i, j) for i in range(count) for j in range(count) if i != j]
    any_two = sum(others) / len(others)
    expected = neighbors - any_two > 1.5 * math.sqrt(any_two * (1 - any_two) / count)
    assert comes_in_runs(sure(labels) + drawn(len(labels), 4) / 9) == expected


def test_information_is_that_of_a_plain_loop() -> None:
    logits = drawn(40, 5)
    rows = probabilities(logits)
    expected = entropy(mean(rows)) - sum(map(entropy, rows)) / 40
    assert information(logits) == pytest.approx(expected, abs=1e-6)
