from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.channel_statistics import (
    ChannelStatistics,
    advance_,
    interpolate,
    measure,
    merge,
    mix,
    moving_average,
    pool,
    values_per_channel,
)

shapes = st.tuples(st.integers(2, 9), st.integers(1, 6)).flatmap(
    lambda ends: st.lists(st.integers(1, 5), max_size=3).map(lambda middle: (*ends, *middle))
)
seeds = st.integers(0, 2**31)
corrections = st.sampled_from([0, 1])


def by_numpy(inputs: Tensor, correction: int) -> tuple[np.ndarray, np.ndarray]:
    channels = np.moveaxis(inputs.double().numpy(), 1, 0).reshape(inputs.shape[1], -1)
    return channels.mean(axis=1), channels.var(axis=1, ddof=correction)


def by_torch(inputs: Tensor, correction: int) -> ChannelStatistics:
    """torch.var_mean in float64."""
    dims = (0, *range(2, inputs.ndim))
    variance, mean = torch.var_mean(inputs.double(), dim=dims, correction=correction)
    return ChannelStatistics(mean, variance)


def close(found: ChannelStatistics, expected: ChannelStatistics, rtol: float = 1e-9) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=rtol, atol=rtol / 10)


def random(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@given(shapes, seeds, corrections)
def test_measure_agrees_with_numpy(shape: tuple[int, ...], seed: int, correction: int) -> None:
    inputs = random(shape, seed) * 3 + 1
    found = measure(inputs, correction)
    mean, variance = by_numpy(inputs, correction)
    np.testing.assert_allclose(found.mean.numpy(), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.variance.numpy(), variance, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "permuted", "strided"])
@pytest.mark.parametrize("shape", [(3, 4, 6, 6), (70, 8, 32, 32), (1, 300, 48, 48)])
def test_measure_does_not_depend_on_layout_or_size(shape: tuple[int, ...], layout: str) -> None:
    """Large inputs are summed in parts; the result is that of the whole."""
    inputs = random(shape, seed=1)
    expected = by_torch(inputs, 1)
    if layout == "channels_last":
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    elif layout == "permuted":
        inputs = inputs.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    elif layout == "strided":
        inputs = torch.stack([inputs, inputs], dim=-1)[..., 0]
    close(measure(inputs, correction=1), expected, rtol=2e-5)


BRANCHES = {
    "small": (3, 4, 8, 8),
    "large": (40, 8, 32, 32),
    "large, two dimensions": (9000, 8),
    "large, one-dimensional signals": (300, 8, 100),
    "larger than one chunk": (20, 8, 64, 64),
}


@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("offset", [0.0, 3.0, 500.0, 10_000.0])
@pytest.mark.parametrize("branch", BRANCHES)
def test_every_branch_agrees_with_torch_in_float64(
    branch: str, offset: float, correction: int
) -> None:
    """Also where the mean is many deviations away, within the precision of float32."""
    inputs = random(BRANCHES[branch], seed=5) + offset
    found, expected = measure(inputs, correction), by_torch(inputs, correction)
    torch.testing.assert_close(found.mean.double(), expected.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance.double(), expected.variance, rtol=1e-4, atol=0)


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_branch_keeps_float64(branch: str) -> None:
    inputs = random(BRANCHES[branch], seed=2, dtype=torch.float64) + 3
    found = measure(inputs, correction=1)
    assert found.mean.dtype == found.variance.dtype == torch.float64
    close(found, by_torch(inputs, 1), rtol=1e-12)


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_float32(branch: str, dtype: torch.dtype) -> None:
    inputs = random(BRANCHES[branch], seed=3).to(dtype)
    found = measure(inputs)
    assert found.mean.dtype == found.variance.dtype == torch.float32
    close(found, by_torch(inputs, 0), rtol=1e-5)


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_constant_channel_has_no_variance(branch: str) -> None:
    inputs = torch.full(BRANCHES[branch], 7.0)
    found = measure(inputs)
    assert torch.equal(found.mean, torch.full_like(found.mean, 7.0))
    assert (found.variance >= 0).all()
    assert found.variance.max() < 1e-6


def test_other_devices_take_the_same_measurement() -> None:
    """Accelerators take torch.var_mean, of which the meta device shows the shapes."""
    assert measure(torch.empty(6, 4, 9, device="meta")).variance.shape == (4,)


def test_a_compiled_graph_measures_the_same() -> None:
    """With a guess of the mean and without one."""
    torch.compiler.reset()
    inputs = random((6, 4, 9), seed=4) + 5
    compiled = torch.compile(measure, backend="eager", fullgraph=True, dynamic=False)
    for near in (None, torch.full((4,), 4.5)):
        close(compiled(inputs, 1, near), by_torch(inputs, 1), rtol=1e-5)


def test_gradients_pass_through_a_measurement() -> None:
    """Whatever branch small inputs without gradients would take."""
    inputs = torch.randn(3, 2, 4, 4, requires_grad=True)
    mean, variance = measure(inputs)
    (found,) = torch.autograd.grad((mean + variance).sum(), inputs)
    centered = inputs.detach() - inputs.detach().mean(dim=(0, 2, 3), keepdim=True)
    torch.testing.assert_close(found, (1 + 2 * centered) / 48)


@given(shapes, seeds)
def test_values_per_channel_counts_images_and_positions(shape: tuple[int, ...], seed: int) -> None:
    inputs = random(shape, seed)
    assert values_per_channel(inputs) == inputs[:, 0].numel()


def test_moving_average_by_hand() -> None:
    one = ChannelStatistics(torch.tensor([1.0]), torch.tensor([2.0]))
    two = ChannelStatistics(torch.tensor([3.0]), torch.tensor([6.0]))
    found = moving_average(one, two, momentum=0.25)
    assert [number.item() for number in found] == [1.5, 3.0]


@given(st.floats(0.01, 1), st.integers(1, 8))
def test_moving_average_weights_batches_by_proposition_2(momentum: float, steps: int) -> None:
    """The i-th average is the sum of (1-m)^(i-t) m x_t, plus (1-m)^i times the start."""
    values = torch.randn(steps, 3, dtype=torch.float64)
    average = ChannelStatistics(torch.zeros(3).double(), torch.ones(3).double())
    for value in values:
        average = moving_average(average, ChannelStatistics(value, value.square()), momentum)
    weights = momentum * (1 - momentum) ** torch.arange(steps - 1, -1, -1, dtype=torch.float64)
    torch.testing.assert_close(average.mean, weights @ values)
    start = (1 - momentum) ** steps
    torch.testing.assert_close(average.variance, weights @ values.square() + start)


def test_momentum_one_is_bit_identical_to_the_current_batch() -> None:
    before, now = (ChannelStatistics(torch.randn(9), torch.rand(9)) for _ in range(2))
    found = moving_average(before, now, 1.0)
    assert torch.equal(found.mean, now.mean)
    assert torch.equal(found.variance, now.variance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("branch", BRANCHES)
def test_advancing_in_place_is_the_moving_average(branch: str, dtype: torch.dtype) -> None:
    inputs = (random(BRANCHES[branch], seed=6) + 1).to(dtype)
    channels = inputs.shape[1]
    before = ChannelStatistics(torch.rand(channels), torch.rand(channels) + 0.5)
    average = ChannelStatistics(*(each.clone() for each in before))
    advance_(average, inputs, 0.1)
    for kept, old, new in zip(average, before, by_numpy(inputs, 1), strict=True):
        np.testing.assert_allclose(kept.numpy(), 0.1 * new + 0.9 * old.numpy(), rtol=1e-5)


def statistics_of(samples: Tensor) -> ChannelStatistics:
    return ChannelStatistics(samples.mean(0), samples.var(0, correction=0))


@given(st.integers(2, 40), st.integers(2, 40), seeds)
def test_mix_is_the_variance_of_pooled_samples(first: int, second: int, seed: int) -> None:
    """Eq. 6 and 7, weighted by the number of samples: the statistics of all samples together."""
    a, b = random((first, 4), seed, torch.float64) - 2, random((second, 4), seed + 1).double() * 3
    found = mix(statistics_of(a), statistics_of(b), first / (first + second))
    close(found, statistics_of(torch.cat([a, b])))


@given(st.floats(0, 1))
def test_mix_is_eq_7_as_printed(weight: float) -> None:
    source = ChannelStatistics(torch.randn(5).double(), torch.rand(5).double())
    target = ChannelStatistics(torch.randn(5).double(), torch.rand(5).double())
    forms: list[float | Tensor] = [weight]
    forms += [torch.full(shape, weight, dtype=torch.float64) for shape in ((), (5,))]
    for form in forms:
        found = mix(source, target, form)
        torch.testing.assert_close(found.mean, weight * source.mean + (1 - weight) * target.mean)
        torch.testing.assert_close(
            found.variance,
            weight * source.variance
            + (1 - weight) * target.variance
            + weight * (1 - weight) * (source.mean - target.mean) ** 2,
        )


def test_interpolation_has_no_cross_term_and_its_ends_are_exact() -> None:
    source = ChannelStatistics(torch.tensor([0.0]), torch.tensor([1.0]))
    target = ChannelStatistics(torch.tensor([10.0]), torch.tensor([3.0]))
    assert [x.item() for x in interpolate(source, target, 0.25)] == [7.5, 2.5]
    for combine in (interpolate, mix):
        for weight, end in ((0.0, target), (1.0, source)):
            found = combine(source, target, torch.tensor(weight))
            assert torch.equal(found.mean, end.mean)
            assert torch.equal(found.variance, end.variance)


@given(st.lists(st.integers(2, 9), min_size=1, max_size=5), seeds, corrections)
def test_pool_is_the_measurement_of_all_inputs_together(
    counts: list[int], seed: int, correction: int
) -> None:
    parts = [random((n, 3, 2), seed + n, torch.float64) * n + 50 * n for n in counts]
    pooled = pool([(by_torch(part, correction), 2 * len(part)) for part in parts], correction)
    close(pooled, by_torch(torch.cat(parts), correction))


def test_pool_takes_parts_of_one_value_with_biased_variance() -> None:
    parts = [torch.randn(count, 3) * scale + scale for count, scale in ((2, 1), (7, 3), (1, 9))]
    pooled = pool([(by_torch(part, 0), len(part)) for part in parts])
    close(pooled, by_torch(torch.cat(parts), 0))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), seeds, corrections)
def test_merge_is_the_measurement_of_all_inputs_together(
    counts: list[int], seed: int, correction: int
) -> None:
    """Far from zero, in uneven parts, some of them empty."""
    parts = [random((n, 4), seed + n, torch.float64) * 3 + 1000 for n in [*counts, 2]]
    means = [part.mean(dim=0) if len(part) else torch.zeros(4).double() for part in parts]
    squares = [(part - mean).square().sum(dim=0) for part, mean in zip(parts, means, strict=True)]
    sizes = torch.tensor([[len(part)] for part in parts], dtype=torch.float64)
    found = merge(sizes, torch.stack(means), torch.stack(squares), correction)
    close(found, by_torch(torch.cat(parts), correction))
