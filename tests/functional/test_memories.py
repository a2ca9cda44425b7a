from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.memories import (
    Remembered,
    Weights,
    add_images,
    between,
    forgetting,
    is_whole,
    steady,
    steps,
)

LIKE = torch.zeros(1, dtype=torch.float64)
EMPTY = Weights(LIKE, LIKE)


def average(values: list[float], sizes: list[int], rate: Tensor) -> tuple[float, Weights]:
    """The average of a stream of values that comes in batches of these sizes."""
    mean, weights, place = 0.0, EMPTY, 0
    for size in sizes:
        weights, share = add_images(weights, rate, size)
        batch = sum(values[place : place + size]) / size
        mean += share.item() * (batch - mean)
        place += size
    return mean, weights


def test_a_warm_start_is_the_plain_mean_while_nothing_is_forgotten() -> None:
    values = [3.0, -1.0, 4.0, 1.0, 5.0, 9.0]
    forgetting_nothing = forgetting([1e9], LIKE)
    for count in range(1, 7):
        mean, weights = average(values, [1] * count, forgetting_nothing)
        assert mean == pytest.approx(sum(values[:count]) / count, rel=1e-6)
        assert weights.images.item() == pytest.approx(count, rel=1e-6)


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(2, 100))
def test_the_past_weighs_the_same_however_the_images_are_batched(
    sizes: list[int], scope: float
) -> None:
    """The weights are those of images one by one, by brute force; only inside a batch they even."""
    rate = forgetting([scope], LIKE)
    one_by_one = [0.1 ** (age / scope) for age in range(sum(sizes) - 1, -1, -1)]
    expected, place = [], 0
    for size in sizes:
        expected += [sum(one_by_one[place : place + size]) / size] * size
        place += size
    values = [float(number * number % 7) for number in range(sum(sizes))]
    mean, weights = average(values, sizes, rate)
    total = sum(expected)
    by_hand = sum(w * v for w, v in zip(expected, values, strict=True)) / total
    assert mean == pytest.approx(by_hand, rel=1e-6, abs=1e-9)
    assert weights.total.item() == pytest.approx(total, rel=1e-6)
    squares = sum(weight**2 for weight in expected)
    assert weights.images.item() == pytest.approx(total**2 / squares, rel=1e-6)


def test_an_image_weighs_a_tenth_of_the_newest_after_the_scope() -> None:
    rate = forgetting([16.0, 128.0], LIKE)
    left = torch.exp(rate * torch.tensor([16.0, 128.0]))
    torch.testing.assert_close(left, torch.full_like(left, 0.1))


def test_steady_weights_stay_as_they_are() -> None:
    rate = forgetting([16.0, 128.0], LIKE)
    before = steady(rate)
    after, share = add_images(before, rate, images=1)
    torch.testing.assert_close(after.total, before.total)
    torch.testing.assert_close(after.squares, before.squares)
    torch.testing.assert_close(share, 1 - rate.exp())


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.lists(st.floats(0, 1), min_size=13, max_size=13),
    st.integers(1, 5),
)
def test_what_is_left_of_a_memory_is_the_weighted_mean_of_what_still_counts(
    sizes: list[int], parts: list[float], remembered_batches: int
) -> None:
    """By brute force over all images; batches of 0 images did not come by."""
    generator = torch.Generator().manual_seed(sum(sizes))
    rate = forgetting([16.0, 3.0], LIKE)
    values = torch.randn(len(sizes), generator=generator, dtype=torch.float64)
    weights, memories = Weights(0 * rate, 0 * rate), torch.zeros(2, dtype=torch.float64)
    for size, value in zip(sizes, values, strict=True):
        if size:
            weights, share = add_images(weights, rate, size)
            memories = torch.lerp(memories, value, share)
    last = min(remembered_batches, len(sizes))
    images = torch.tensor(sizes[::-1][:last], dtype=torch.float64)[:, None]
    kept = torch.tensor(sorted(parts[:last], reverse=True), dtype=torch.float64)
    older = kept.min() * parts[-1]
    state = Remembered(Weights(*(each[None] for each in weights)), rate, images)
    left, matrix = state.thinned(kept, older)
    found = matrix[0] @ torch.cat((memories, values.flip(0)[:last]))

    ages = [sum(sizes[place + 1 :]) for place in range(len(sizes))]
    part = [*[older] * (len(sizes) - last), *kept.flip(0)]
    for memory, decay in enumerate(rate.exp().tolist()):
        each = [
            (
                float(part[place]) * decay ** ages[place] * sum(decay**age for age in range(size)),
                size,
            )
            for place, size in enumerate(sizes)
        ]
        total = sum(weight for weight, _ in each)
        squares = sum(weight**2 / size for weight, size in each if size)
        assert left.total[0, memory].item() == pytest.approx(total, rel=1e-4, abs=1e-9)
        assert left.squares[0, memory].item() == pytest.approx(squares, rel=1e-4, abs=1e-9)
        if total > 1e-3:
            mean = sum(
                weight * value.item() for (weight, _), value in zip(each, values, strict=True)
            )
            assert found[memory].item() == pytest.approx(mean / total, rel=1e-4, abs=1e-6)


def test_steps_lead_from_the_source_over_each_memory_with_the_batch_to_the_batch() -> None:
    """Layer by layer, against the memories themselves; two layers of 2 and 3 moments."""
    generator = torch.Generator().manual_seed(0)
    memories, batch = torch.randn(4, 5, generator=generator).double().split([3, 1])
    share = torch.rand(2, 3, generator=generator).double()
    layer = torch.tensor([0, 0, 1, 1, 1])
    before, gains = steps(memories, share, layer, between(3, memories))
    for place in (0, 1):
        mine = layer == place
        now = torch.lerp(memories[:, mine], batch[:, mine], share[place][:, None])
        points = torch.cat((torch.zeros_like(now[:1]), now, batch[:, mine]))
        found = before[:, mine] + gains[place][:, None] * batch[:, mine]
        torch.testing.assert_close(found, points.diff(dim=0))


def test_only_what_is_known_to_be_whole_is() -> None:
    assert is_whole(torch.tensor(1.0))
    assert not is_whole(torch.tensor(0.9999))
