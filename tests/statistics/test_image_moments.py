from __future__ import annotations

import torch
from torch import Tensor

from realistic_tta.statistics.channel_statistics import ChannelStatistics, measure
from realistic_tta.statistics.image_moments import image_moments, to_moments, to_statistics


def some_images(count: int, offset: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    level = torch.randn(count, 3, 1, 1, generator=generator)
    return torch.randn(count, 3, 4, 5, generator=generator) + level + offset


def test_averaged_moments_give_the_pooled_variance_of_the_images() -> None:
    """The total variance: what is inside images, and between them."""
    inputs = some_images(7)
    centre = torch.tensor([0.5, -1.0, 2.0])
    found = to_statistics(image_moments(inputs, centre).mean(dim=0), centre)
    expected = measure(inputs)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.variance, expected.variance)


def test_the_mean_of_image_variances_leaves_out_what_images_differ_by() -> None:
    inputs = some_images(50)
    inside = inputs.var(dim=(2, 3), correction=0).mean(dim=0)
    means = inputs.mean(dim=(2, 3))
    between = means.var(dim=0, correction=0)
    centre = torch.zeros(3)
    total = to_statistics(image_moments(inputs, centre).mean(dim=0), centre).variance
    torch.testing.assert_close(total, inside + between)
    assert (between > 0.3 * total).all()


def test_a_mean_far_larger_than_the_deviation_costs_no_digits() -> None:
    inputs = some_images(9, offset=10_000.0)
    centre = torch.full((3,), 10_000.0)
    found = to_statistics(image_moments(inputs, centre).mean(dim=0), centre)
    expected = measure(inputs.double())
    torch.testing.assert_close(found.variance.double(), expected.variance, rtol=1e-3, atol=0)


def test_moments_and_statistics_are_each_others_inverse() -> None:
    statistics = ChannelStatistics(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    centre = torch.tensor([0.25, 4.0])
    found = to_statistics(to_moments(statistics, centre), centre)
    torch.testing.assert_close(found.mean, statistics.mean)
    torch.testing.assert_close(found.variance, statistics.variance)


def test_inputs_without_positions_have_one_value_an_image() -> None:
    inputs = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    expected = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[3.0, 4.0], [9.0, 16.0]]])
    torch.testing.assert_close(image_moments(inputs, torch.tensor([0.0, 2.0])), expected)
