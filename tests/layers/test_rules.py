from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import convolutional, images, on_cpu, randomize
from torch import Tensor, nn

from realistic_tta.functional.channel_statistics import ChannelStatistics, measure, mix
from realistic_tta.functional.shrinkage import image_statistics, source_precision
from realistic_tta.layers.adaptive_batch_norm import AdaptiveBatchNorm, RuleSlot
from realistic_tta.layers.adaptive_layers import AdaptiveLayers
from realistic_tta.layers.rules import (
    BatchStatistics,
    FixedStatistics,
    InterpolatedStatistics,
    MovingAverage,
    PooledDistance,
    RectifiedMovingAverage,
    ShrunkImageAverage,
    StatisticsRule,
    TrainingStatistics,
    UnrecordedStatistics,
    used_layers,
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


def following(norm: nn.Module, rule: StatisticsRule) -> AdaptiveBatchNorm:
    """The layer as an adaptive one that follows the rule."""
    slot = RuleSlot()
    slot.rules = [rule]
    return AdaptiveBatchNorm(norm, "0", slot, 0)


def shrunk(
    past_weight: float = 0.0, past: Tensor | None = None, pooled: PooledDistance | None = None
) -> ShrunkImageAverage:
    """The rule of a layer that has seen `past`, or nothing; four images count."""
    average = ChannelStatistics(torch.zeros(2, 1, 2), torch.zeros(2, 2, 2))
    if past is not None:  # both averages are the same
        mean, variances = image_statistics(past)
        average = ChannelStatistics(mean.expand(2, 1, 2), variances.expand(2, 2, 2))
    each = source_precision(SOURCE.variance, torch.full((2,), 2))
    weight, maximum = torch.full((2, 1, 1), past_weight), torch.tensor(0.5)
    pooled = PooledDistance() if pooled is None else pooled
    return ShrunkImageAverage(average, weight, SOURCE, each, each / 3, maximum, pooled, None)


def check(found: ChannelStatistics | None, expected: ChannelStatistics) -> None:
    assert found is not None
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_a_layer_used_several_times_sees_one_batch(sizes: list[int]) -> None:
    """Whatever the number of uses, target is made from the statistics of all inputs together."""
    inputs = uses(sizes)
    batch, linear = BatchStatistics(None), InterpolatedStatistics(SOURCE, 0.9, None)
    average = MovingAverage(copy_of(BEFORE), BEFORE, 0.25, None)
    for part in inputs:
        batch.statistics(part), linear.statistics(part), average.statistics(part)
    check(batch.target, truth(inputs, 0))
    check(linear.target, truth(inputs, 1))
    mean, variance = truth(inputs, 1)
    check(average.target, ChannelStatistics(mean / 4, variance / 4 + 0.75))


def test_stateless_rules_normalize_each_use_by_itself() -> None:
    """As torch does in train mode; only what is remembered is pooled."""
    first, second = uses([4, 2])
    batch = BatchStatistics(None)
    batch.statistics(first)
    check(batch.statistics(second), truth([second], 0))
    linear = InterpolatedStatistics(SOURCE, 0.75, None)
    linear.statistics(first)
    mean, variance = truth([second], 1)
    expected = ChannelStatistics(
        0.75 * SOURCE.mean + 0.25 * mean, 0.75 * SOURCE.variance + 0.25 * variance
    )
    check(linear.statistics(second), expected)


def test_rectified_average_mixes_for_use_and_remembers_unmixed() -> None:
    inputs = uses([5])
    rule = RectifiedMovingAverage(
        copy_of(BEFORE), BEFORE, 1.0, None, source=SOURCE, source_weight=torch.tensor(0.5)
    )
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
        BatchStatistics(None),
        InterpolatedStatistics(SOURCE, 0.5, None),
        MovingAverage(copy_of(BEFORE), BEFORE, 0.1, None),
        shrunk(),
        TrainingStatistics(),
    ]
    assert [rule.target for rule in rules] == [None] * len(rules)
    assert used_layers(rules) == []
    assert rules[0].statistics(uses([3])[0]) is SOURCE
    assert rules[0].target is None
    for rule in rules:
        rule.statistics(uses([3])[0])
    assert used_layers(rules) == [1, 2, 3, 4, 5]
    assert used_layers(rules[1:]) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_torchs_kernel_measures_is_what_we_would(dtype: torch.dtype) -> None:
    """Channels with a large mean, a tiny and a huge deviation, and none at all."""
    scale = torch.tensor([1.0, 1e-3, 100.0, 0.0]).view(1, 4, 1, 1)
    batch = torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(0)) * scale + 3
    batch = batch.to(dtype)
    rule = TrainingStatistics()
    layer = following(nn.BatchNorm2d(4).to(dtype).eval(), rule)
    layer(batch)
    assert rule.target is not None
    expected = measure(batch)
    torch.testing.assert_close(rule.target.mean, expected.mean)
    torch.testing.assert_close(rule.target.variance, expected.variance, atol=1e-9, rtol=1e-4)
    layer(batch + 1)
    pooled = measure(torch.cat([batch, batch + 1]))
    torch.testing.assert_close(rule.target.variance, pooled.variance, atol=1e-4, rtol=1e-3)


def test_a_pass_that_is_not_recorded_normalizes_the_same_and_has_no_target() -> None:
    batch = torch.randn(6, 4, 5, 5)
    norm, rule = randomize(nn.BatchNorm2d(4)), UnrecordedStatistics()
    expected = following(norm, TrainingStatistics())(batch)
    assert torch.equal(following(norm, rule)(batch), expected)
    assert rule.target is None


def test_gradients_pass_through_the_statistics() -> None:
    """As through a mean and a variance that are written out."""
    batch = torch.randn(6, 3, 4, dtype=torch.float64, requires_grad=True)
    layer = following(randomize(nn.BatchNorm1d(3)).double(), TrainingStatistics())
    weights = torch.arange(72.0, dtype=torch.float64).view(6, 3, 4)
    (found,) = torch.autograd.grad((layer(batch) * weights).sum(), batch)
    mean = batch.mean(dim=(0, 2), keepdim=True)
    variance = (batch - mean).square().mean(dim=(0, 2), keepdim=True)
    own = layer.layer
    outputs = (batch - mean) / torch.sqrt(variance + own.eps)
    outputs = outputs * own.weight[:, None] + own.bias[:, None]
    (expected,) = torch.autograd.grad((outputs * weights).sum(), batch)
    torch.testing.assert_close(found, expected)


def test_an_average_over_images_counts_every_use_alike() -> None:
    """A second use is normalized with the statistics of both, in equal parts."""
    first, second = uses([4, 2])
    rule = shrunk()
    expected = truth([first], 0)
    distance = chance = 0.0
    for part in (first, second):
        found = rule.statistics(part)
        if part is second:
            expected = mix(expected, truth([second], 0), 0.5)
        assert rule.target is not None
        check(rule.target, expected)
        scale = SOURCE.variance + 1e-5
        distance += ((expected.mean - SOURCE.mean) ** 2 / scale).mean().item()
        chance += (rule.averages.variance[0, 1] / scale).mean().item() / 3
        weight = 0.5 * max(0.0, 1 - (chance / distance) ** 2)
        assert weight > 0
        assert rule.target_weight.item() == pytest.approx(weight, rel=1e-5)
        check(found, mix(SOURCE, expected, 1 - weight))


def test_a_layer_is_shrunk_by_the_distance_of_the_layers_before_it_too() -> None:
    """The same layer gets more of the target after one that has moved far, and less of it alone."""
    few = uses([4])[0]
    alone = shrunk()
    alone.statistics(few)
    pooled = PooledDistance()
    first, second = (shrunk(pooled=pooled) for _ in range(2))
    first.statistics(few + 9)
    second.statistics(few)
    assert alone.target_weight < second.target_weight < first.target_weight < 0.5


def test_an_average_over_images_starts_from_the_past_that_it_is_given() -> None:
    before, batch = uses([3, 5])
    rule = shrunk(3 / 8, before)
    rule.statistics(batch)
    assert rule.target is not None
    check(rule.target, truth([before, batch], 0))


def test_layers_follow_rules_only_while_the_context_lasts() -> None:
    """Also if the pass fails; outside, every layer uses its source statistics."""
    model = convolutional()
    expected = model(images(4)).detach()
    replaced, layers = AdaptiveLayers.replace(convolutional(), "a test")
    replaced.eval()
    rules = [BatchStatistics(None) for _ in layers.layers]
    with torch.no_grad(), layers.following(rules):
        assert not torch.allclose(replaced(images(4)), expected)
    assert torch.equal(replaced(images(4)).detach(), expected)
    with pytest.raises(RuntimeError), layers.following(rules):
        replaced(torch.rand(4, 99, 12, 12))
    assert torch.equal(replaced(images(4)).detach(), expected)


def test_unused_layers_keep_the_statistics_and_numbers_from_before() -> None:
    with on_cpu():
        model = nn.ModuleList([randomize(nn.BatchNorm1d(2), seed) for seed in range(3)])
    _, layers = AdaptiveLayers.replace(model, "a test")
    rules = [BatchStatistics(None) for _ in layers.layers]
    (batch,) = uses([4])
    with layers.following(rules):
        layers.layers[1](batch)
    before = ChannelStatistics(torch.arange(6.0), torch.arange(6.0) + 10)
    mean, variance = layers.collect_target(rules, before)
    expected = truth([batch], 0)
    assert mean.tolist()[:2] + mean.tolist()[4:] == [0, 1, 4, 5]
    assert variance.tolist()[:2] + variance.tolist()[4:] == [10, 11, 14, 15]
    check(ChannelStatistics(mean[2:4], variance[2:4]), expected)
    merged = layers.merge_where_used(rules, torch.tensor([7.0, 8, 9]), torch.zeros(3))
    assert merged.tolist() == [0, 8, 0]


def test_numbers_per_layer_are_repeated_for_each_channel() -> None:
    _, layers = AdaptiveLayers.replace(convolutional(), "a test")
    found = layers.per_channel(torch.tensor([0.1, 0.2, 0.3]))
    expected = torch.tensor([0.1] * 8 + [0.2] * 12 + [0.3] * 16)
    assert torch.equal(found, expected)
    mean = torch.cat([convolutional().get_buffer(f"{n}.running_mean") for n in (1, 4, 7)])
    assert torch.equal(layers.source.mean, mean)
