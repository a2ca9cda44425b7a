"""Shares of the predicted classes against simulation, and what they say of runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from realistic_tta.statistics.class_shares import (
    class_concentration,
    concentration,
    in_runs,
    predicted,
    uncertainty,
    watch,
)
from realistic_tta.statistics.memories import Weights, add_images, forgetting

LIKE = torch.zeros(1, dtype=torch.float64)
EVEN = torch.full((10,), 0.1, dtype=torch.float64)


@pytest.mark.parametrize(("classes", "images"), [(10, 4), (10, 50), (100, 20)])
@pytest.mark.parametrize("usual", ["even", "skewed"])
def test_independent_images_are_as_concentrated_as_one_over_their_number(
    classes: int, images: int, usual: str
) -> None:
    """Whatever classes are usual: those that a network under shift predicts are not even."""
    generator = torch.Generator().manual_seed(classes + images)
    likely = torch.ones(classes) if usual == "even" else torch.rand(classes, generator=generator)
    drawn = torch.multinomial(likely.expand(20_000, -1), images, True, generator=generator)
    shares = torch.zeros(20_000, classes).scatter_add_(1, drawn, torch.ones(drawn.shape)) / images
    found = class_concentration(shares, likely / likely.sum()).mean().item()
    assert found == pytest.approx(1 / images, rel=0.03)


def test_concentration_does_not_depend_on_which_classes_they_are() -> None:
    usual, shares = torch.tensor([[0.5, 0.3, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0]])
    orders = [torch.randperm(4, generator=torch.Generator().manual_seed(n)) for n in (1, 2)]
    expected = class_concentration(shares, usual)
    for order in orders:
        torch.testing.assert_close(class_concentration(shares[order], usual[order]), expected)


def test_a_memory_without_predictions_is_not_concentrated() -> None:
    for shares in (torch.zeros(3, 10), torch.zeros(3, 1), torch.ones(3, 1)):
        assert class_concentration(shares, shares[0]).tolist() == [0.0] * 3


def stream_of(labels: Tensor, classes: int) -> tuple[Weights, Tensor]:
    """After a stream of single images: weights and shares of the classes in each memory."""
    rate = forgetting([1024.0, 128.0, 16.0], LIKE)
    weights = Weights(0 * rate, 0 * rate)
    shares = rate.new_zeros(3, classes)
    for label in torch.nn.functional.one_hot(labels, classes).to(rate):
        weights, share = add_images(weights, rate, images=1)
        shares = torch.lerp(shares, label, share[:, None])
    return weights, shares


def test_a_network_that_is_partial_to_some_classes_is_not_taken_for_runs() -> None:
    """Drawn independently, the longest memory is worth nearly all of its images in the end."""
    likely = torch.arange(1.0, 11.0).square()
    labels = torch.multinomial(likely, 4000, True, generator=torch.Generator().manual_seed(0))
    weights, shares = stream_of(labels, 10)
    assert class_concentration(shares[0], EVEN) > 30 / weights.images[0]
    assert concentration(shares, shares, weights)[0] < 10 / weights.images[0]


def test_uneven_classes_that_come_in_runs_count_in_full() -> None:
    labels = torch.arange(10).repeat_interleave(400)
    weights, shares = stream_of(labels, 10)
    longest = class_concentration(shares[0], EVEN)
    found = concentration(shares, shares, weights)
    assert found[0] > 0.9 * longest > 30 / weights.images[0]
    torch.testing.assert_close(found[1:], class_concentration(shares[1:], shares[0]))


def test_at_the_start_one_class_is_hardly_more_than_one_image() -> None:
    """Nothing older tells whether it is a run."""
    weights, shares = stream_of(torch.zeros(16, dtype=torch.long), 10)
    assert weights.images[0] > 15
    assert concentration(shares, shares, weights)[0] > 0.8


def test_a_memory_is_as_uncertain_as_its_independent_images_or_its_classes_say() -> None:
    found = uncertainty(torch.tensor([[100.0, 4.0]]), torch.tensor([0.02, 0.1]))
    assert found.tolist() == [[pytest.approx(0.02), 0.25]]


def test_shares_of_predictions_are_counted() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 9.0, 1.0]])
    assert predicted(logits, 3).float().mean(dim=0).tolist() == [0.25, 0.75, 0.0]


def test_what_is_watched_is_a_moving_average() -> None:
    runs = torch.zeros(2)
    for _ in range(200):
        runs = watch(runs, torch.tensor(0.8), torch.tensor(0.1), torch.tensor(0.9))
    torch.testing.assert_close(runs, torch.tensor([0.8, 0.1]), atol=1e-4, rtol=0)
    assert in_runs(runs) == pytest.approx(1 - 1.5 * 0.1 / 0.8, abs=1e-4)
