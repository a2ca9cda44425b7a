from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, kl_divergence

from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.rectification import (
    channel_divergence,
    divergence,
    source_weights,
    update_prior,
)

numbers = st.lists(st.floats(0, 1e4, allow_nan=False), min_size=1, max_size=60)


def random_statistics(channels: int, generator: torch.Generator) -> ChannelStatistics:
    mean = torch.randn(channels, generator=generator, dtype=torch.float64)
    variance = torch.rand(channels, generator=generator, dtype=torch.float64) * 3
    return ChannelStatistics(mean, variance)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 2**31))
def test_divergence_is_torchs_kl_of_full_gaussians(sizes: list[int], seed: int) -> None:
    """Algorithm 1, line 7, the way the paper writes it: full covariance matrices, both ways."""
    generator = torch.Generator().manual_seed(seed)
    source, target = (random_statistics(sum(sizes), generator) for _ in range(2))
    expected = []
    for s_mean, s_variance, t_mean, t_variance in zip(
        *(part.split(sizes) for part in (*source, *target)), strict=True
    ):
        s = MultivariateNormal(s_mean, torch.diag(s_variance + 1e-5))
        t = MultivariateNormal(t_mean, torch.diag(t_variance + 1e-5))
        expected.append(0.5 * kl_divergence(s, t) + 0.5 * kl_divergence(t, s))
    found = divergence(source, target, torch.tensor(sizes))
    torch.testing.assert_close(found, torch.stack(expected))


def test_divergence_by_hand() -> None:
    """Means 0 and 2, variances 1 - 1e-5 and 4 - 1e-5: ((1-4)^2 + 4 * 5) / (4 * 4) = 29 / 16."""
    source = ChannelStatistics(torch.zeros(1).double(), torch.tensor([1 - 1e-5]).double())
    target = ChannelStatistics(torch.full((1,), 2.0).double(), torch.tensor([4 - 1e-5]).double())
    assert channel_divergence(source, target).item() == pytest.approx(29 / 16)
    assert channel_divergence(source, source).item() == 0


@given(numbers)
def test_source_weights_are_the_clipped_z_score(found: list[float]) -> None:
    """Stage 2 by NumPy, whose standard deviation is the population's."""
    values = np.asarray(found)
    spread = values.std()
    weights = source_weights(torch.tensor(found, dtype=torch.float64)).numpy()
    assert ((weights >= 0) & (weights <= 0.5)).all()
    if spread > 1e-9 * values.max(initial=0) + 1e-300:
        expected = 0.5 * (np.clip((values - values.mean()) / spread, -1, 1) + 1) / 2
        np.testing.assert_allclose(weights, expected, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 53])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e-9, 12345.678])
def test_equal_divergences_give_every_layer_a_quarter(count: int, value: float) -> None:
    """The z-score is 0 where its denominator is, though rounding leaves a speck in both."""
    for dtype in (torch.float32, torch.float64):
        assert (source_weights(torch.full((count,), value, dtype=dtype)) == 0.25).all()


def test_prior_by_hand() -> None:
    found = update_prior(torch.tensor([0.0, 0.5]), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(found, torch.tensor([0.05, 0.5]))
