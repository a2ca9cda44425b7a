"""Losses between student and teacher by hand, on two images of two classes."""

from __future__ import annotations

from math import log

import pytest
import torch

from realistic_tta.methods.consistency import (
    confidence,
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
