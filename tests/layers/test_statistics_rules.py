from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import randomize
from torch import Tensor, nn

from realistic_tta.functional.channel_statistics import ChannelStatistics, measure
from realistic_tta.layers.adaptive_batch_norm import AdaptiveBatchNorm
from realistic_tta.layers.statistics_rules import (
    BatchStatistics,
    FixedStatistics,
    InterpolatedStatistics,
    MovingAverage,
    RectifiedMovingAverage,
    StatisticsRule,
    TrainingStatistics,
    UnrecordedStatistics,
)

SOURCE = ChannelStatistics(torch.tensor([0.5, -1.0]), torch.tensor([2.0, 0.5]))
BEFORE = ChannelStatistics(torch.zeros(2), torch.ones(2))


def uses(sizes: list[int], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 2, 3, generator=generator) + size for size in sizes]


def truth(inputs: list[Tensor], correction: int) -> ChannelStatistics:
    """Statistics of all inputs, as if they had come in one."""
    together = torch.cat(inputs)
    variance, mean = torch.var_mean(together, dim=(0, 2), correction=correction)
    return ChannelStatistics(mean, variance)


def copy_of(statistics: ChannelStatistics) -> ChannelStatistics:
    return ChannelStatistics(*(each.clone() for each in statistics))


def check(found: ChannelStatistics | None, expected: ChannelStatistics) -> None:
    assert found is not None
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_a_layer_used_several_times_sees_one_batch(sizes: list[int]) -> None:
    """Whatever the number of uses, target is made from the statistics of all inputs together."""
    inputs = uses(sizes)
    batch, linear = BatchStatistics(), InterpolatedStatistics(SOURCE, 0.9)
    average = MovingAverage(copy_of(BEFORE), BEFORE, 0.25)
    for part in inputs:
        batch.statistics(part), linear.statistics(part), average.statistics(part)
    check(batch.target, truth(inputs, 0))
    check(linear.target, truth(inputs, 1))
    mean, variance = truth(inputs, 1)
    check(average.target, ChannelStatistics(mean / 4, variance / 4 + 0.75))


def test_stateless_rules_normalise_each_use_by_itself() -> None:
    """As torch does in train mode; only what is remembered is pooled."""
    first, second = uses([4, 2])
    batch = BatchStatistics()
    batch.statistics(first)
    check(batch.statistics(second), truth([second], 0))
    linear = InterpolatedStatistics(SOURCE, 0.75)
    linear.statistics(first)
    mean, variance = truth([second], 1)
    expected = ChannelStatistics(
        0.75 * SOURCE.mean + 0.25 * mean, 0.75 * SOURCE.variance + 0.25 * variance
    )
    check(linear.statistics(second), expected)


def test_rectified_average_mixes_for_use_and_remembers_unmixed() -> None:
    inputs = uses([5])
    rule = RectifiedMovingAverage(copy_of(BEFORE), BEFORE, 1.0, SOURCE, torch.tensor(0.5))
    used = rule.statistics(inputs[0])
    mean, variance = truth(inputs, 1)
    check(rule.target, ChannelStatistics(mean, variance))
    gap = (SOURCE.mean - mean) ** 2
    expected = ChannelStatistics(
        (SOURCE.mean + mean) / 2, (SOURCE.variance + variance) / 2 + gap / 4
    )
    check(used, expected)


def test_a_rule_that_was_not_used_has_no_target() -> None:
    rules: list[StatisticsRule] = [
        FixedStatistics(SOURCE),
        BatchStatistics(),
        InterpolatedStatistics(SOURCE, 0.5),
        MovingAverage(copy_of(BEFORE), BEFORE, 0.1),
        RectifiedMovingAverage(copy_of(BEFORE), BEFORE, 0.1, SOURCE, torch.tensor(0.1)),
    ]
    assert [rule.target for rule in rules] == [None] * 5
    assert rules[0].statistics(uses([3])[0]) is SOURCE
    assert rules[0].target is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_torchs_kernel_measures_is_what_we_would(dtype: torch.dtype) -> None:
    """Channels with a large mean, a tiny and a huge deviation, and none at all."""
    scale = torch.tensor([1.0, 1e-3, 100.0, 0.0]).view(1, 4, 1, 1)
    batch = torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(0)) * scale + 3
    batch = batch.to(dtype)
    layer = AdaptiveBatchNorm(nn.BatchNorm2d(4).to(dtype).eval(), "0")
    rule = TrainingStatistics()
    layer.follow(rule)
    layer(batch)
    assert rule.target is not None
    expected = measure(batch)
    torch.testing.assert_close(rule.target.mean, expected.mean)
    torch.testing.assert_close(rule.target.variance, expected.variance, atol=1e-9, rtol=1e-4)
    layer(batch + 1)
    pooled = measure(torch.cat([batch, batch + 1]))
    torch.testing.assert_close(rule.target.variance, pooled.variance, atol=1e-4, rtol=1e-3)


def test_a_pass_that_is_not_recorded_normalises_the_same_and_has_no_target() -> None:
    batch = torch.randn(6, 4, 5, 5)
    layer = AdaptiveBatchNorm(randomize(nn.BatchNorm2d(4)), "0")
    layer.follow(TrainingStatistics())
    expected = layer(batch)
    rule = UnrecordedStatistics()
    layer.follow(rule)
    assert torch.equal(layer(batch), expected)
    assert rule.target is None


def test_gradients_pass_through_the_statistics() -> None:
    """As through a mean and a variance that are written out."""
    batch = torch.randn(6, 3, 4, dtype=torch.float64, requires_grad=True)
    layer = AdaptiveBatchNorm(randomize(nn.BatchNorm1d(3)).double(), "0")
    layer.follow(TrainingStatistics())
    weights = torch.arange(72.0, dtype=torch.float64).view(6, 3, 4)
    (found,) = torch.autograd.grad((layer(batch) * weights).sum(), batch)
    mean = batch.mean(dim=(0, 2), keepdim=True)
    variance = (batch - mean).square().mean(dim=(0, 2), keepdim=True)
    own = layer.layer
    outputs = (batch - mean) / torch.sqrt(variance + own.eps)
    outputs = outputs * own.weight[:, None] + own.bias[:, None]
    (expected,) = torch.autograd.grad((outputs * weights).sum(), batch)
    torch.testing.assert_close(found, expected)
