from __future__ import annotations

import pytest
import torch
from torch import Tensor

from realistic_tta.functional.arrays import as_tensor, at_hand
from realistic_tta.functional.channel_statistics import ChannelStatistics, measure
from realistic_tta.functional.image_moments import (
    Units,
    image_moments,
    is_far,
    to_batch_variances,
    to_statistics,
    without_between,
)


def some_images(count: int, offset: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    level = torch.randn(count, 3, 1, 1, generator=generator)
    return torch.randn(count, 3, 4, 5, generator=generator) + level + offset


def units(*means: float, variance: float = 2.0, floor: float = 1e-5) -> Units:
    mean = torch.tensor(means)
    source = ChannelStatistics(mean, torch.full_like(mean, variance))
    return Units.of(source, floor, is_far=is_far(source))


def test_averaged_moments_give_the_pooled_variance_of_the_images() -> None:
    """The total variance: what is inside images, and between them."""
    inputs, own = some_images(7), units(0.5, -1.0, 2.0)
    found = to_statistics(image_moments(inputs, own).mean(0), own)
    expected = measure(inputs)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_moments_are_those_of_a_loop_whatever_the_layout(layout: torch.memory_format) -> None:
    inputs, own = some_images(5).contiguous(memory_format=layout), units(0.5, -1.0, 2.0)
    found = as_tensor(image_moments(inputs, own)).view(5, 2, 3)
    for image, moments in zip(inputs, found, strict=True):
        for channel, mean in enumerate((0.5, -1.0, 2.0)):
            apart = [value - mean for value in image[channel].flatten().tolist()]
            first = sum(apart) / len(apart) / 2**0.5
            second = (sum(each**2 for each in apart) / len(apart) - 2) / (2 * 2**0.5)
            torch.testing.assert_close(
                moments[:, channel], torch.tensor((first, second)), rtol=1e-4, atol=1e-4
            )


def test_the_mean_of_image_variances_leaves_out_what_images_differ_by() -> None:
    inputs, own = some_images(50), units(0.0, 0.0, 0.0)
    inside = inputs.var(dim=(2, 3), correction=0).mean(dim=0)
    between = inputs.mean(dim=(2, 3)).var(dim=0, correction=0)
    moments = image_moments(inputs, own)
    total = to_statistics(moments.mean(0), own).variance
    torch.testing.assert_close(total, inside + between, rtol=1e-4, atol=1e-5)
    assert (between > 0.3 * total).all()
    alone = without_between(moments).mean(0)
    found = to_batch_variances(alone, own).variance
    torch.testing.assert_close(found, inside, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 30.0, 10_000.0])
def test_a_mean_far_larger_than_the_deviation_costs_no_digits(offset: float) -> None:
    inputs, own = some_images(9, offset), units(offset, offset, offset)
    found = to_statistics(image_moments(inputs, own).mean(0), own)
    expected = measure(inputs.double())
    torch.testing.assert_close(found.variance.double(), expected.variance, rtol=1e-3, atol=0)
    torch.testing.assert_close(found.mean.double(), expected.mean, rtol=1e-6, atol=1e-5)


def test_the_source_is_at_zero_and_a_gaussian_of_it_scatters_by_one() -> None:
    """Which is what makes distances of all channels and of both moments comparable."""
    own = units(1.0, -3.0, variance=4.0, floor=0.0)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(20_000, 2, generator=generator) * 2 + torch.tensor([1.0, -3.0])
    moments = as_tensor(image_moments(noise, own))
    torch.testing.assert_close(moments.mean(dim=0), torch.zeros(4), rtol=0, atol=0.03)
    torch.testing.assert_close(moments.var(dim=0), torch.ones(4), rtol=0, atol=0.06)


def test_moments_of_no_shift_are_the_source() -> None:
    own = units(0.25, 4.0)
    found = to_statistics(at_hand(torch.zeros(4)), own)
    assert torch.equal(found.mean, own.source.mean)
    assert torch.equal(found.variance, own.source.variance)


def test_inputs_without_positions_have_one_value_an_image() -> None:
    own = units(0.0, 2.0, variance=1.0, floor=0.0)
    found = image_moments(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), own)
    root = 2**0.5
    expected = torch.tensor([[1, 0, 0, -1 / root], [3, 4, 8 / root, 15 / root]])
    torch.testing.assert_close(as_tensor(found), expected)
