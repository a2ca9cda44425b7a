from __future__ import annotations

import pytest
import torch
from torch import Tensor

from realistic_tta.statistics.leaning import lean

SCALE = torch.tensor([[1.0, 0.5], [2.0, 1.0]])


def gap(first: Tensor, second: Tensor) -> float:
    return float(((first - second).square() * SCALE).sum())


def test_a_gap_that_is_explained_moves_nothing() -> None:
    start, memory = torch.zeros(2, 2), torch.ones(1, 2, 2)
    found = lean(start, memory, torch.tensor([gap(start, memory[0])]), SCALE)
    assert torch.equal(found.moments, start)
    assert found.start_weight == 1


def test_a_gap_that_nothing_explains_is_gone_all_the_way() -> None:
    memory = torch.ones(1, 2, 2)
    found = lean(torch.zeros(2, 2), memory, torch.zeros(1), SCALE)
    assert torch.equal(found.moments, memory[0])
    assert found.start_weight == 0


def test_the_steps_are_those_of_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 2, generator=generator)
    memories = torch.randn(3, 2, 2, generator=generator)
    explained = [0.7, 0.2, 3.0]
    expected, weight = start, 1.0
    for memory, tolerated in zip(memories, explained, strict=True):
        stay = min(1.0, tolerated / gap(expected, memory))
        expected, weight = stay * expected + (1 - stay) * memory, weight * stay
    found = lean(start, memories, torch.tensor(explained), SCALE)
    torch.testing.assert_close(found.moments, expected)
    assert found.start_weight.item() == pytest.approx(weight)


def test_memories_that_are_alike_need_no_explanation() -> None:
    same = torch.ones(2, 2)
    found = lean(same, same.repeat(3, 1, 1), torch.zeros(3), SCALE)
    assert torch.equal(found.moments, same)


def test_leaning_estimates_better_than_the_mean_alone_where_the_start_is_near() -> None:
    """James and Stein: in 40 channels, by simulation, at distances from none to far."""
    generator = torch.Generator().manual_seed(1)
    scale = torch.ones(2, 20)
    for distance in (0.0, 0.1, 1.0):
        truth = torch.full((2, 20), distance)
        errors = []
        for _ in range(300):
            memory = truth + torch.randn(2, 20, generator=generator) * 0.3
            found = lean(torch.zeros(2, 20), memory[None], torch.tensor([0.09 * 40]), scale)
            errors.append([(each - truth).square().sum() for each in (found.moments, memory)])
        leaning, alone = torch.tensor(errors).mean(dim=0).tolist()
        assert leaning < alone * (0.4 if distance < 0.2 else 1.0)
