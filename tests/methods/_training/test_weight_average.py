from __future__ import annotations

import pytest
import torch

from realistic_tta.methods._training.weight_average import follow, restore


def test_the_teacher_is_the_closed_form_of_its_average() -> None:
    """After t steps: m ** t of the start, and (1 - m) m ** (t - s) of the student of step s."""
    students = torch.randn(9, 5, dtype=torch.float64)
    start = torch.randn(5, dtype=torch.float64)
    teacher = start
    for student in students:
        teacher = follow(teacher, student, 0.9)
    expected = 0.9**9 * start
    for step, student in enumerate(students):
        expected = expected + 0.1 * 0.9 ** (8 - step) * student
    torch.testing.assert_close(teacher, expected)


@pytest.mark.parametrize("probability", [0.001, 0.01, 0.3])
def test_restore_returns_the_given_part_of_all_numbers(probability: float) -> None:
    """Within five deviations of the binomial over 400,000 draws; the rest is untouched."""
    weights, source = torch.ones(100_000), torch.zeros(100_000)
    generator = torch.Generator().manual_seed(0)
    restored = 0
    for _ in range(4):
        after = restore(weights, source, probability, generator)
        assert set(after.unique().tolist()) <= {0.0, 1.0}
        restored += int((after == 0).sum())
    expected, spread = 400_000 * probability, (400_000 * probability * (1 - probability)) ** 0.5
    assert abs(restored - expected) < 5 * spread


def test_every_number_has_its_own_draw_each_time() -> None:
    """At one half, two draws agree in half of the places, not in none or all."""
    weights, source, generator = torch.ones(10_000), torch.zeros(10_000), torch.Generator()
    first = restore(weights, source, 0.5, generator.manual_seed(1))
    second = restore(weights, source, 0.5, generator)
    assert float((first == second).float().mean()) == pytest.approx(0.5, abs=0.05)
    assert torch.equal(first, restore(weights, source, 0.5, generator.manual_seed(1)))


def test_restore_never_and_always() -> None:
    weights, source, generator = torch.rand(100), torch.rand(100), torch.Generator()
    assert torch.equal(restore(weights, source, 0.0, generator), weights)
    assert torch.equal(restore(weights, source, 1.0, generator), source)
