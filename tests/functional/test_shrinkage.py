"""Averages over images and the weight of the target, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.channel_statistics import ChannelStatistics, mix
from realistic_tta.functional.shrinkage import (
    TINY,
    ImageWeights,
    chance_scale,
    fluctuation,
    image_statistics,
    source_precision,
    unexplained,
)

CHANNELS = 3
seeds = st.integers(0, 2**31)
sizes = st.lists(st.integers(1, 5), min_size=1, max_size=6)  # of the batches of a stream
positions = st.lists(st.integers(1, 4), max_size=3)
decays = st.floats(0.01, 1)


def images(count: int, seed: int, inner: tuple[int, ...] = (4, 3)) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (count, CHANNELS, *(1 for _ in inner))
    level = torch.randn(shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, CHANNELS, *inner, generator=generator, dtype=torch.float64)
    return 1 + level + noise


def stream_statistics(
    batches: list[Tensor], decay: float
) -> tuple[ChannelStatistics, ImageWeights]:
    """The average after a stream, as the method updates it, and the weights of its images."""
    weights = ImageWeights(*batches[0].new_zeros(2, 1))
    average = ChannelStatistics(batches[0].new_zeros(CHANNELS), batches[0].new_zeros(2, CHANNELS))
    for batch in batches:
        weights = weights.after(len(batch), decay ** len(batch))
        average = mix(average, image_statistics(batch), 1 - len(batch) / weights.total)
    return average, weights


def stream_weights(batches: list[Tensor], decay: float) -> list[float]:
    """The weight of each image: by the number of images that came in later batches."""
    weights: list[float] = []
    later = 0
    for batch in reversed(batches):
        weights = [decay**later] * len(batch) + weights
        later += len(batch)
    return weights


def source(mean: float = 0.0, variance: float = 2.0) -> ChannelStatistics:
    ones = torch.ones(CHANNELS, dtype=torch.float64)
    return ChannelStatistics(mean * ones, variance * ones)


def target_weight(
    average: ChannelStatistics,
    images: float | Tensor,
    reference: ChannelStatistics | None = None,
    maximum: float = 0.5,
    correlation_time: float = 1.0,
) -> float:
    """The weight of the target in one layer alone, for an average that rests on so many images."""
    reference = source() if reference is None else reference
    count = torch.as_tensor(images, dtype=torch.float64).squeeze()
    each = source_precision(reference.variance.double(), torch.full((CHANNELS,), CHANNELS))
    shift = average.mean.double() - reference.mean.double()
    chance = torch.dot(average.variance[1].double(), each) * chance_scale(
        count, count.new_tensor(correlation_time)
    )
    distance = TINY + torch.dot(shift * shift, each)
    weight = unexplained(chance, distance) * maximum * (count > 1)
    return weight.item()


@given(sizes, positions, decays, seeds)
def test_the_average_is_that_of_a_loop_over_images(
    counts: list[int], inner: list[int], decay: float, seed: int
) -> None:
    batches = [images(count, seed + i, tuple(inner)) for i, count in enumerate(counts)]
    average, found = stream_statistics(batches, decay)
    weights, everything = stream_weights(batches, decay), torch.cat(batches).numpy()
    for channel in range(CHANNELS):
        values = everything[:, channel].reshape(len(weights), -1)
        means, repeated = values.mean(axis=1), np.repeat(weights, values.shape[1])
        mean = np.average(means, weights=weights)
        variance = np.average((values.ravel() - mean) ** 2, weights=repeated)
        between = np.average((means - mean) ** 2, weights=weights)
        assert average.mean[channel].item() == pytest.approx(mean, abs=1e-10)
        assert average.variance[0, channel].item() == pytest.approx(variance, abs=1e-10)
        assert average.variance[1, channel].item() == pytest.approx(between, abs=1e-10)
    assert found.total.item() == pytest.approx(sum(weights))
    assert found.squares.item() == pytest.approx(sum(weight**2 for weight in weights))


@given(sizes, positions, seeds)
def test_with_equal_weights_they_are_torchs_mean_and_biased_variance(
    counts: list[int], inner: list[int], seed: int
) -> None:
    batches = [images(count, seed + i, tuple(inner)) for i, count in enumerate(counts)]
    (average, weights), everything = stream_statistics(batches, decay=1.0), torch.cat(batches)
    dims = (0, *range(2, everything.ndim))
    variance, mean = torch.var_mean(everything, dim=dims, correction=0)
    torch.testing.assert_close(average.mean, mean)
    torch.testing.assert_close(average.variance[0], variance, rtol=1e-7, atol=1e-10)
    assert weights.images().item() == pytest.approx(sum(counts))


@given(sizes, decays, seeds)
def test_the_effective_number_of_images(counts: list[int], decay: float, seed: int) -> None:
    """(sum of weights) ** 2 / sum of squared weights: between 1 and all images."""
    batches = [images(count, seed) for count in counts]
    weights = stream_weights(batches, decay)
    found = stream_statistics(batches, decay)[1].images().item()
    assert found == pytest.approx(sum(weights) ** 2 / sum(weight**2 for weight in weights))
    assert 1 - 1e-12 <= found <= sum(counts) + 1e-9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_float32(dtype: torch.dtype) -> None:
    batch = images(6, 0).to(dtype)
    found, expected = image_statistics(batch), image_statistics(batch.double())
    assert found.mean.dtype == torch.float32
    torch.testing.assert_close(found.mean.double(), expected.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance.double(), expected.variance, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ratio", [1.0, 100.0, 1000.0])
def test_a_mean_far_above_the_deviation_costs_no_digits(ratio: float) -> None:
    batch = (images(8, 0, (16, 16)) + ratio).float()
    found, expected = image_statistics(batch), image_statistics(batch.double())
    torch.testing.assert_close(found.variance.double(), expected.variance, rtol=1e-4, atol=1e-5)


@given(sizes, decays, seeds, st.floats(-3, 3), st.floats(0, 4))
def test_the_weight_is_that_of_the_formula(
    counts: list[int], decay: float, seed: int, mean: float, time: float
) -> None:
    """Written out with NumPy; and it lies between 0 and the maximum."""
    maximum = 0.7
    batches = [images(count, seed + i) for i, count in enumerate(counts)]
    average, image_weights = stream_statistics(batches, decay)
    found = target_weight(average, image_weights.images(), source(mean), maximum, time)
    assert 0 <= found <= maximum
    if sum(counts) == 1:
        assert found == 0
        return
    weights = np.array(stream_weights(batches, decay))
    means = torch.cat(batches).mean(dim=(2, 3)).numpy()  # (image, channel)
    center = np.average(means, axis=0, weights=weights)
    between = np.average((means - center) ** 2, axis=0, weights=weights)
    effective = weights.sum() ** 2 / (weights**2).sum()
    chance = np.mean(between / (2 + 1e-5)) * max(1, time) ** 2 / min(effective - 1, 10)
    distance = np.mean((center - mean) ** 2 / (2 + 1e-5))
    expected = maximum * max(0.0, 1 - (chance / distance) ** 2)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(seeds, st.floats(-100, 100))
def test_a_single_image_has_no_weight(seed: int, mean: float) -> None:
    assert target_weight(image_statistics(images(1, seed)), 1, source(mean)) == 0


@given(st.integers(2, 9), seeds)
def test_a_target_mean_equal_to_the_sources_has_no_weight(count: int, seed: int) -> None:
    average = image_statistics(images(count, seed))
    reference = ChannelStatistics(average.mean, source().variance)
    assert target_weight(average, count, reference) == 0


@given(st.integers(2, 9), seeds)
def test_the_weight_increases_with_the_distance(count: int, seed: int) -> None:
    average = image_statistics(images(count, seed))
    found = [
        target_weight(average, count, ChannelStatistics(average.mean + shift, source().variance))
        for shift in (0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 100.0)
    ]
    assert found == sorted(found)
    assert found[0] == 0
    assert 0.49 < found[-1] <= 0.5


def test_the_weight_increases_with_the_number_of_images() -> None:
    """The same average of more images: less of its distance is chance, up to ten."""
    average = image_statistics(images(4, 1))
    assert 0 < target_weight(average, 4) < target_weight(average, 8) < 0.5
    assert target_weight(average, 16) == target_weight(average, 1000)


def moved(past: Tensor, recent: Tensor) -> float:
    """The fluctuation of one layer of one channel."""
    before, now = image_statistics(past), image_statistics(recent)
    ones = past.new_ones(1)
    return fluctuation(before, now, ones, ones * len(recent), ones.long()).item()


@given(seeds)
def test_the_fluctuation_is_in_units_of_chance(seed: int) -> None:
    """By hand; each layer for itself."""
    everything = images(400, seed)
    past, recent = image_statistics(everything), image_statistics(everything[384:] + 4)
    channels = torch.tensor([1, 2])
    precision = source_precision(torch.ones(3, dtype=torch.float64), channels[[0, 1, 1]])
    counts = torch.tensor([16.0, 16.0])
    found = fluctuation(past, recent, precision, counts, channels).tolist()
    means = everything.mean(dim=(2, 3))
    distance = (means[384:].mean(0) + 4 - means.mean(0)) ** 2
    between = means.var(dim=0, correction=0)
    assert found[0] == pytest.approx((distance[0] / (between[0] / 16) * 1.5).item())
    assert found[1] == pytest.approx((distance[1:].sum() / (between[1:].sum() / 16) * 1.5).item())


def test_the_fluctuation_is_about_1_in_random_order_and_larger_in_runs() -> None:
    """Averages as realistic keeps them, batch by batch; runs of fifty images."""
    everything = images(2000, 1, (1, 1))[:, :1]
    runs = everything[::50].repeat_interleave(50, dim=0)
    for stream, low, high in ((everything, 0.6, 1.5), (runs, 3.0, 30.0)):
        found = []
        for end in range(400, 2000, 8):
            ages = torch.arange(end, 0, -1, dtype=torch.float64)
            weights = [0.1 ** (ages / length) for length in (128, 16)]
            means = [(w / w.sum()) @ stream[:end, 0, 0, 0] for w in weights]
            between = (weights[0] / weights[0].sum()) @ (stream[:end, 0, 0, 0] - means[0]) ** 2
            count = (weights[1].sum() ** 2 / weights[1].square().sum())[None]
            variances = torch.stack((between, between))[:, None]
            past, recent = (ChannelStatistics(mean[None], variances) for mean in means)
            ones = count.new_ones(1)
            found.append(fluctuation(past, recent, ones, count, ones.long()).item())
        assert low < np.mean(found) < high


def test_the_same_images_have_not_moved() -> None:
    assert moved(images(9, 0)[:, :1], images(9, 0)[:, :1]) == 0
    same = torch.full((4, 1, 2, 2), 3.0)
    assert moved(same, same + 1e-7) < 1  # no image differs: rounding is no distance


def constant(value: float) -> Tensor:
    return torch.full((4, CHANNELS, 2, 2), value)


DEGENERATE = {
    "zeros": constant(0.0),
    "constant": constant(3.0),
    "constant and large": constant(1e6),
    "identical images": images(1, 0).float().expand(5, -1, -1, -1),
    "a single image": images(1, 0).float(),
    "a single value": torch.ones(1, CHANNELS),
    "huge": images(4, 0).float() * 1e15,
    "a large mean": images(4, 0).float() + 1e4,
    "tiny": images(4, 0).float() * 1e-20,
}


@pytest.mark.parametrize("variance", [0.0, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_images_give_finite_numbers(kind: str, variance: float) -> None:
    batch = DEGENERATE[kind]
    average = image_statistics(batch)
    reference = ChannelStatistics(torch.zeros(CHANNELS), torch.full((CHANNELS,), variance))
    assert torch.isfinite(average.mean).all()
    assert torch.isfinite(average.variance).all()
    assert (average.variance >= -1e-6 * average.mean.square()).all()
    assert 0 <= target_weight(average, len(batch), reference) <= 0.5
