from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.arrays import as_tensor
from realistic_tta.functional.channel_statistics import (
    ChannelStatistics,
    measure,
    moving_average,
)
from realistic_tta.functional.image_moments import Units, image_moments
from realistic_tta.functional.rectification import VARIANCE_FLOOR
from realistic_tta.functional.trust import (
    BOUND,
    TrustedSums,
    moments_about,
    remoteness,
    remoteness_in_units,
    robust_average,
    trust,
)

CHANNELS = 3
SOURCE = ChannelStatistics(torch.tensor([0.5, -1.0, 20.0]), torch.tensor([2.0, 0.5, 0.1]))
PREVIOUS = ChannelStatistics(torch.tensor([0.7, -0.8, 19.9]), torch.tensor([1.5, 0.6, 0.2]))
LARGEST = float(torch.finfo(torch.float32).max)


def like_the_source(images: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(images, CHANNELS, 4, 4, generator=generator).clamp(-1.7, 1.7)
    return noise * SOURCE.variance.sqrt().view(-1, 1, 1) + SOURCE.mean.view(-1, 1, 1)


def average(inputs: Tensor, momentum: float, correction: int = 1) -> ChannelStatistics:
    sums = TrustedSums.of(inputs, SOURCE)
    return robust_average(PREVIOUS, sums, momentum, SOURCE.mean, correction)


def standardised(statistics: ChannelStatistics) -> tuple[Tensor, Tensor]:
    """First and second moment about the source's mean, in its deviations and variances."""
    first = statistics.mean - SOURCE.mean
    variance = SOURCE.variance + VARIANCE_FLOOR
    return first / variance.sqrt(), (statistics.variance + first.square()) / variance


def test_remoteness_is_the_mean_square_of_what_the_source_would_normalise_to() -> None:
    inputs = like_the_source(5, seed=1) * 1.3
    found = remoteness(moments_about(inputs, SOURCE.mean), SOURCE.variance)
    moments = as_tensor(image_moments(inputs, Units.of(SOURCE, VARIANCE_FLOOR)))
    in_units = remoteness_in_units(moments)
    torch.testing.assert_close(in_units, found, rtol=1e-3, atol=0)
    normalised = torch.nn.functional.batch_norm(inputs, *SOURCE, eps=VARIANCE_FLOOR)
    torch.testing.assert_close(found, normalised.square().mean(dim=(1, 2, 3)), rtol=1e-4, atol=0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.sampled_from([1.0, 0.1, 0.01]), st.integers(0, 1), st.integers(0, 999))
def test_without_an_image_beyond_the_bound_it_is_the_plain_average(
    images: int, momentum: float, correction: int, seed: int
) -> None:
    inputs = like_the_source(images, seed)
    plain = moving_average(PREVIOUS, measure(inputs, correction), momentum)
    found = average(inputs, momentum, correction)
    torch.testing.assert_close(found.mean, plain.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.variance, plain.variance, rtol=1e-3, atol=1e-5)


ANY = st.floats(-LARGEST, LARGEST, width=32)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 12), ANY, st.integers(0, CHANNELS), st.integers(0, 99))
def test_one_image_of_any_value_adds_at_most_the_bound_over_the_number_of_images(
    images: int, value: float, channel: int, seed: int
) -> None:
    """Of the batch's summed moments, over its images; in one channel, or in all of them (0)."""
    good = like_the_source(images, seed)
    bad = like_the_source(1, seed + 1)
    where = slice(None) if channel == 0 else slice(channel - 1, channel)
    bad[:, where] += value
    with_it, without = (TrustedSums.of(each, SOURCE) for each in (torch.cat([good, bad]), good))
    precision = 1 / (SOURCE.variance + VARIANCE_FLOOR)
    added = (with_it.moments - without.moments)[1] @ precision / CHANNELS / with_it.values
    assert torch.isfinite(with_it.moments).all()
    assert -1e-3 <= added <= BOUND / (images + 1) * 1.001 + 1e-3


@settings(max_examples=200, deadline=None)
@given(st.lists(ANY, min_size=1, max_size=6), st.sampled_from([1.0, 0.1]), st.integers(0, 99))
def test_nothing_but_hostile_images_leaves_finite_statistics_near_the_source(
    values: list[float], momentum: float, seed: int
) -> None:
    """Whatever comes, and however often: the moments stay within what the bound allows."""
    scale = torch.tensor(values).view(-1, 1, 1, 1)
    now = PREVIOUS
    for _ in range(3):
        sums = TrustedSums.of(like_the_source(len(values), seed) + scale, SOURCE)
        now = robust_average(now, sums, momentum, SOURCE.mean, 1)
    first, second = standardised(now)
    assert torch.isfinite(first).all()
    assert first.square().mean() <= 2 * BOUND
    assert second.mean() <= 2 * BOUND


def test_an_image_beyond_all_bounds_leaves_the_average_where_it_was() -> None:
    bad = like_the_source(1, seed=3) * 1e6
    found = average(bad, momentum=0.1)
    torch.testing.assert_close(found.mean, PREVIOUS.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.variance, PREVIOUS.variance, rtol=1e-5, atol=1e-6)


def test_squares_that_overflow_count_for_nothing() -> None:
    good = like_the_source(4, seed=3)
    bad = torch.full((1, CHANNELS, 4, 4), 3e30)
    assert torch.isinf(moments_about(bad, SOURCE.mean)[:, 1]).all()
    alone, together = average(good, 1.0), average(torch.cat([good, bad]), 1.0)
    expected = moving_average(PREVIOUS, alone, 4 / 5)  # the fifth share stays with the past
    torch.testing.assert_close(together.mean, expected.mean)
    count = 5 * 16
    torch.testing.assert_close(
        together.variance - 0.2 * PREVIOUS.variance,
        0.8 * alone.variance * (63 / 64) * count / (count - 1),
        rtol=1e-4,
        atol=1e-6,
    )


def test_nan_is_not_hidden() -> None:
    """The caller looks for it, and leaves out the sample that brought it."""
    inputs = like_the_source(2, seed=4)
    inputs[1, 0, 0, 0] = torch.nan
    assert average(inputs, 1.0).mean.isnan().any()


def test_a_shift_of_the_whole_stream_is_followed_if_later() -> None:
    """Twice the bound away: a quarter of the trust, and the same place in the end."""
    deviation = SOURCE.variance.sqrt().view(-1, 1, 1)
    shifted = like_the_source(64, seed=5) + deviation * (2 * BOUND) ** 0.5
    target, now = measure(shifted, 1), SOURCE
    for _ in range(40):
        now = robust_average(now, TrustedSums.of(shifted, SOURCE), 1.0, SOURCE.mean, 1)
    weights = trust(remoteness(moments_about(shifted, SOURCE.mean), SOURCE.variance))
    assert weights.max() < 0.6
    torch.testing.assert_close(now.mean, target.mean, rtol=0.01, atol=0.05)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_sums_of_two_uses_are_those_of_both_together(first: int, second: int, seed: int) -> None:
    inputs = like_the_source(first + second, seed) * 2
    parts = [TrustedSums.of(part, SOURCE) for part in inputs.split([first, second])]
    found, expected = parts[0].plus(parts[1]), TrustedSums.of(inputs, SOURCE)
    assert found.values == expected.values
    torch.testing.assert_close(found.trusted, expected.trusted)
    torch.testing.assert_close(found.moments, expected.moments, rtol=1e-4, atol=1e-3)
