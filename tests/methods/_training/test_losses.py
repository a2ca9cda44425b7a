"""The losses and pseudo-labels of cotta and adacontrast, by hand on a few images."""

from __future__ import annotations

from math import exp, log

import pytest
import torch

from realistic_tta.methods._training.losses import (
    concentration,
    confidence,
    contrast,
    nearest_probabilities,
    soft_cross_entropy,
    symmetric_cross_entropy,
)

# Softmax of these: (3/4, 1/4), (1/2, 1/2) and (1/5, 4/5), (1/2, 1/2).
STUDENT = torch.tensor([[log(3), 0.0], [1.0, 1.0]])
TEACHER = torch.tensor([[0.0, log(4)], [2.0, 2.0]])


def test_soft_cross_entropy_by_hand() -> None:
    first = -(0.2 * log(0.75) + 0.8 * log(0.25))
    found = soft_cross_entropy(STUDENT, TEACHER).item()
    assert found == pytest.approx((first + log(2)) / 2)


def test_symmetric_cross_entropy_by_hand() -> None:
    there = -(0.2 * log(0.75) + 0.8 * log(0.25))
    back = -(0.75 * log(0.2) + 0.25 * log(0.8))
    expected = ((there + back) / 2 + log(2)) / 2
    assert symmetric_cross_entropy(STUDENT, TEACHER).item() == pytest.approx(expected)
    assert symmetric_cross_entropy(TEACHER, STUDENT).item() == pytest.approx(expected)


def test_the_students_gradient_is_its_distance_from_the_teacher() -> None:
    """d loss / d logits = (softmax(student) - softmax(teacher)) / images."""
    student = STUDENT.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(soft_cross_entropy(student, TEACHER), student)
    expected = torch.tensor([[0.55, -0.55], [0.0, 0.0]]) / 2
    torch.testing.assert_close(gradient, expected)


def test_the_symmetric_loss_has_a_gradient_through_both_of_its_parts() -> None:
    """Against finite differences in the student."""
    student = STUDENT.double().requires_grad_()
    torch.autograd.gradcheck(lambda x: symmetric_cross_entropy(x, TEACHER.double()), (student,))


def test_confidence_is_the_mean_of_the_largest_probabilities() -> None:
    assert confidence(STUDENT).item() == pytest.approx((0.75 + 0.5) / 2)


# Four samples in the plane; lengths other than 1 must not matter.
QUERIES = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0], [0.0, -1.0]])
KEYS = torch.tensor([[5.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, -4.0]])
LABELS = torch.tensor([0, 1, 2, 0])
QUEUE = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
QUEUE_LABELS = torch.tensor([0, 1, 1])


def test_contrast_with_masks_on_four_samples_by_hand() -> None:
    """Cosines, temperature .5 so twice as much in the exponent; masked entries do not appear."""
    losses = [
        # own key 1; queue: masked (label 0), 0, -1
        log(exp(2) + exp(0) + exp(-2)) - 2,
        # own key 0; queue: 0, masked (label 1), masked
        log(exp(0) + exp(0)) - 0,
        # own key 0; no entry has label 2: 1, 0, -1
        log(exp(0) + exp(2) + exp(0) + exp(-2)) - 0,
        # own key 1; queue: masked, -1, 0
        log(exp(2) + exp(-2) + exp(0)) - 2,
    ]
    found = contrast(
        QUERIES, KEYS, LABELS, queue_keys=QUEUE, queue_labels=QUEUE_LABELS, temperature=0.5
    )
    assert found.item() == pytest.approx(sum(losses) / 4, rel=1e-6)


def test_a_query_with_every_negative_masked_loses_nothing() -> None:
    labels = torch.zeros(3, dtype=torch.int64)
    queries = QUERIES[:1].clone().requires_grad_()
    loss = contrast(
        queries, KEYS[1:2], labels[:1], queue_keys=QUEUE, queue_labels=labels, temperature=0.07
    )
    (gradient,) = torch.autograd.grad(loss, queries)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_concentration_by_hand() -> None:
    logits = torch.tensor([[log(3), 0.0], [0.0, 0.0]])  # mean softmax: 5/8, 3/8
    expected = 5 / 8 * log(5 / 8) + 3 / 8 * log(3 / 8)
    assert concentration(logits).item() == pytest.approx(expected, rel=1e-6)
    assert concentration(torch.zeros(7, 4)).item() == pytest.approx(-log(4), rel=1e-6)


def test_labels_are_the_mean_of_the_nearest_by_brute_force() -> None:
    features, bank = torch.randn(6, 3), torch.nn.functional.normalize(torch.randn(20, 3))
    probabilities = torch.rand(20, 4)
    found = nearest_probabilities(features, bank, probabilities, 5)
    for feature, result in zip(features, found, strict=True):
        cosines = [float(feature @ entry / feature.norm()) for entry in bank]
        nearest = sorted(range(20), key=lambda place: -cosines[place])[:5]
        torch.testing.assert_close(result, probabilities[nearest].mean(dim=0))


def test_a_bank_with_fewer_entries_than_neighbours_uses_what_it_has() -> None:
    bank = torch.tensor([[-1.0, 0.0], [-1.0, 0.0]])
    probabilities = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    found = nearest_probabilities(torch.tensor([[1.0, 0.0]]), bank, probabilities, 3)
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.4]]))
