from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.leaning import (
    at_least,
    at_most,
    lean,
    log,
    source_weight,
    square,
    together,
)


def steps_of(memories: Tensor) -> Tensor:
    """From the source, at 0, to the first memory, and from each to the next."""
    return torch.diff(memories, dim=0, prepend=torch.zeros_like(memories[:1]))


def leant(memories: Tensor, explained: list[float]) -> Tensor:
    steps = steps_of(memories)
    taken = lean((steps @ steps.T).tolist(), explained)
    return torch.tensor(taken, dtype=memories.dtype) @ steps


def test_a_gap_that_is_explained_moves_nothing() -> None:
    memory = torch.tensor([[3.0, 4.0]])
    assert torch.equal(leant(memory, [25.0]), torch.zeros(2))


def test_a_gap_that_nothing_explains_is_gone_all_the_way() -> None:
    memory = torch.tensor([[3.0, 4.0]])
    assert torch.equal(leant(memory, [0.0]), memory[0])


@given(st.integers(0, 1000), st.integers(1, 4))
def test_the_steps_are_those_of_a_plain_loop(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    memories = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    explained = (torch.rand(count, generator=generator) * 8).tolist()
    expected = torch.zeros(6, dtype=torch.float64)
    for memory, tolerated in zip(memories, explained, strict=True):
        stay = min(1.0, tolerated / float((memory - expected).square().sum()))
        expected = stay * expected + (1 - stay) * memory
    torch.testing.assert_close(leant(memories, explained), expected)


def test_memories_that_are_alike_need_no_explanation() -> None:
    memories = torch.ones(3, 4)
    assert torch.equal(leant(memories, [0.0, 0.0, 0.0]), memories[0])


def test_the_square_is_that_of_the_sum() -> None:
    steps = torch.randn(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    parts = [0.3, -1.0, 2.0]
    expected = (torch.tensor(parts, dtype=torch.float64) @ steps).square().sum().item()
    assert square((steps @ steps.T).tolist(), parts) == pytest.approx(expected)


@given(st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 1), st.floats(min_value=0, max_value=1e6))
def test_the_source_weighs_less_the_further_it_is(
    distance: float, least: float, tolerance: float, further: float
) -> None:
    near = source_weight(distance, least, tolerance)
    far = source_weight(distance + further, least, tolerance)
    assert least <= far <= near <= 1


def test_where_nothing_has_shifted_the_source_is_all() -> None:
    assert source_weight(0.009, 0.5, 0.01) == 1
    assert source_weight(0.0, 0.5, 0.0) == 1


def test_leaning_estimates_better_than_the_mean_alone_where_the_start_is_near() -> None:
    """James and Stein: in 40 channels, by simulation, at distances from none to far."""
    generator = torch.Generator().manual_seed(1)
    for distance in (0.0, 0.1, 1.0):
        truth = torch.full((40,), distance)
        errors = []
        for _ in range(300):
            memory = truth + torch.randn(40, generator=generator) * 0.3
            found = leant(memory[None], [0.09 * 40])
            errors.append([(each - truth).square().sum() for each in (found, memory)])
        leaning, alone = torch.tensor(errors).mean(dim=0).tolist()
        assert leaning < alone * (0.4 if distance < 0.2 else 1.0)


@pytest.mark.parametrize("value", [0.0, 0.25, 3.0])
def test_tensors_of_no_dimension_are_reckoned_with_as_numbers_are(value: float) -> None:
    for found, expected in (
        (at_least(torch.tensor(value), 1.0), at_least(value, 1.0)),
        (at_most(torch.tensor(value), 1.0), at_most(value, 1.0)),
        (at_most(torch.tensor(value), torch.tensor(0.5)), at_most(value, 0.5)),
        (log(torch.tensor(value)), log(value)),
    ):
        assert isinstance(found, Tensor)
        assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_become_a_vector_of_their_own(dtype: torch.dtype) -> None:
    values = [0.1, -2.0, float("nan"), 1e300]
    found = together(values, torch.zeros(1, dtype=dtype))
    torch.testing.assert_close(found, torch.tensor(values, dtype=dtype), equal_nan=True)
    assert found.add_(1).dtype is dtype  # memory of its own


@given(st.integers(0, 1000))
def test_tensors_that_stay_on_a_device_lean_as_numbers_do(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    explained = torch.rand(3, generator=generator, dtype=torch.float64) * 8
    products = steps @ steps.T
    numbers = lean(products.tolist(), explained.tolist())
    tensors = lean([list(row.unbind()) for row in products.unbind()], list(explained.unbind()))
    assert all(isinstance(each, Tensor) for each in tensors)
    assert [float(each) for each in tensors] == pytest.approx(numbers, abs=1e-9)
    distance = square(products.tolist(), numbers)
    weight = source_weight(torch.tensor(distance, dtype=torch.float64), 0.5, 0.3)
    assert float(weight) == pytest.approx(float(source_weight(distance, 0.5, 0.3)))
