from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.channel_statistics import (
    ChannelStatistics,
    advance_,
    interpolate,
    measure,
    mix,
    moving_average,
    pool,
    pool_all,
    rescale,
)

shapes = st.tuples(st.integers(2, 9), st.integers(1, 6)).flatmap(
    lambda ends: st.lists(st.integers(1, 5), max_size=3).map(lambda middle: (*ends, *middle))
)


def by_numpy(inputs: Tensor, correction: int) -> tuple[np.ndarray, np.ndarray]:
    channels = np.moveaxis(inputs.double().numpy(), 1, 0).reshape(inputs.shape[1], -1)
    return channels.mean(axis=1), channels.var(axis=1, ddof=correction)


def statistics_of(samples: Tensor) -> ChannelStatistics:
    return ChannelStatistics(samples.mean(0), samples.var(0, correction=0))


@given(shapes, st.integers(0, 2**31), st.sampled_from([0, 1]))
def test_measure_agrees_with_numpy(shape: tuple[int, ...], seed: int, correction: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(shape, generator=generator) * 3 + 1
    found = measure(inputs, correction)
    mean, variance = by_numpy(inputs, correction)
    np.testing.assert_allclose(found.mean.numpy(), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.variance.numpy(), variance, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "permuted", "strided"])
@pytest.mark.parametrize("shape", [(3, 4, 6, 6), (70, 8, 32, 32), (1, 300, 48, 48)])
def test_measure_does_not_depend_on_layout_or_size(shape: tuple[int, ...], layout: str) -> None:
    """Large inputs are summed in parts; the result is that of the whole."""
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = by_numpy(inputs, 1)
    if layout == "channels_last":
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    elif layout == "permuted":
        inputs = inputs.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    elif layout == "strided":
        inputs = torch.stack([inputs, inputs], dim=-1)[..., 0]
    for found, wanted in zip(measure(inputs, correction=1), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-5, atol=2e-6)


def test_a_mean_far_above_the_deviation_costs_no_digits() -> None:
    inputs = 10_000 + torch.rand(64, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    _, variance = by_numpy(inputs, 0)
    np.testing.assert_allclose(measure(inputs).variance.numpy(), variance, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_float32(dtype: torch.dtype) -> None:
    inputs = torch.randn(16, 3, 5, 5).to(dtype)
    found = measure(inputs)
    assert found.mean.dtype == found.variance.dtype == torch.float32
    np.testing.assert_allclose(found.variance.numpy(), by_numpy(inputs, 0)[1], rtol=1e-5)
    assert measure(inputs.double()).mean.dtype == torch.float64


def test_the_route_of_other_devices_is_the_same_measurement() -> None:
    """torch.var_mean, which accelerators take, against the CPU's own."""
    inputs = torch.randn(6, 4, 9)
    variance, mean = torch.var_mean(inputs, dim=(0, 2), correction=1)
    found = measure(inputs, correction=1)
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.variance, variance)
    assert measure(torch.empty(6, 4, 9, device="meta")).variance.shape == (4,)


def test_moving_average_by_hand() -> None:
    one = ChannelStatistics(torch.tensor([1.0]), torch.tensor([2.0]))
    two = ChannelStatistics(torch.tensor([3.0]), torch.tensor([6.0]))
    found = moving_average(one, two, momentum=0.25)
    assert [number.item() for number in found] == [1.5, 3.0]


@given(st.floats(0.01, 1), st.integers(1, 8))
def test_moving_average_weighs_batches_as_proposition_2_says(momentum: float, steps: int) -> None:
    """The i-th average is the sum of (1-m)^(i-t) m x_t, plus (1-m)^i times the start."""
    values = torch.randn(steps, 3, dtype=torch.float64)
    average = ChannelStatistics(torch.zeros(3).double(), torch.ones(3).double())
    for value in values:
        average = moving_average(average, ChannelStatistics(value, value.square()), momentum)
    weights = momentum * (1 - momentum) ** torch.arange(steps - 1, -1, -1, dtype=torch.float64)
    torch.testing.assert_close(average.mean, weights @ values)
    start = (1 - momentum) ** steps
    torch.testing.assert_close(average.variance, weights @ values.square() + start)


def test_momentum_one_is_the_current_batch_to_the_bit() -> None:
    before, now = (ChannelStatistics(torch.randn(9), torch.rand(9)) for _ in range(2))
    found = moving_average(before, now, 1.0)
    assert torch.equal(found.mean, now.mean)
    assert torch.equal(found.variance, now.variance)


@settings(deadline=None)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(0, 2**31))
def test_mix_is_the_variance_of_pooled_samples(first: int, second: int, seed: int) -> None:
    """Eq. 6 and 7 with the samples' shares as weights: the statistics of all samples together."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(first, 4, generator=generator, dtype=torch.float64) - 2
    b = torch.randn(second, 4, generator=generator, dtype=torch.float64) * 3
    together = statistics_of(torch.cat([a, b]))
    found = mix(statistics_of(a), statistics_of(b), first / (first + second))
    torch.testing.assert_close(found.mean, together.mean)
    torch.testing.assert_close(found.variance, together.variance)
    pooled = pool(statistics_of(a), first, statistics_of(b), second)
    torch.testing.assert_close(pooled.variance, together.variance)


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


def test_rescale_turns_the_biased_variance_into_the_unbiased() -> None:
    samples = torch.randn(7, 3)
    biased = statistics_of(samples)
    torch.testing.assert_close(rescale(biased, 7, by=6).variance, samples.var(0))


def test_pooling_many_is_measuring_all_of_it_at_once() -> None:
    parts = [torch.randn(count, 3) * scale + scale for count, scale in ((2, 1), (7, 3), (1, 9))]
    pooled = pool_all([(measure(part), len(part)) for part in parts])
    expected = measure(torch.cat(parts))
    torch.testing.assert_close(pooled.mean, expected.mean)
    torch.testing.assert_close(pooled.variance, expected.variance)


ROUTES = {
    "torch's kernel": (3, 4, 8, 8),
    "one sweep": (40, 8, 32, 32),
    "two sweeps": (40, 8),
}


@pytest.mark.parametrize("offset", [0.0, 3.0, 500.0])
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_of_a_measurement_keeps_its_digits(route: str, offset: float) -> None:
    """Also where the mean is many deviations away, which one sweep alone could not do."""
    inputs = torch.randn(ROUTES[route], generator=torch.Generator().manual_seed(5)) + offset
    mean, variance = by_numpy(inputs, 1)
    found = measure(inputs, correction=1)
    np.testing.assert_allclose(found.mean.numpy(), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.variance.numpy(), variance, rtol=2e-5)


@pytest.mark.parametrize("route", ROUTES)
def test_an_average_carried_on_in_place_is_the_moving_average(route: str) -> None:
    inputs = torch.randn(ROUTES[route], generator=torch.Generator().manual_seed(6)) + 1
    channels = inputs.shape[1]
    before = ChannelStatistics(torch.rand(channels), torch.rand(channels) + 0.5)
    average = ChannelStatistics(*(each.clone() for each in before))
    advance_(average, inputs, 0.1)
    for kept, old, new in zip(average, before, by_numpy(inputs, 1), strict=True):
        np.testing.assert_allclose(kept.numpy(), 0.1 * new + 0.9 * old.numpy(), rtol=1e-5)


def test_gradients_pass_through_a_measurement() -> None:
    """Whatever route small inputs without gradients would take."""
    inputs = torch.randn(3, 2, 4, 4, requires_grad=True)
    mean, variance = measure(inputs)
    (found,) = torch.autograd.grad((mean + variance).sum(), inputs)
    centred = inputs.detach() - inputs.detach().mean(dim=(0, 2, 3), keepdim=True)
    torch.testing.assert_close(found, (1 + 2 * centred) / 48)
