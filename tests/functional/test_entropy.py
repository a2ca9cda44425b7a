from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from realistic_tta.functional.entropy import entropy, threshold


@given(st.integers(1, 6), st.integers(2, 9), st.integers(0, 2**31))
def test_entropy_is_that_of_torchs_categorical(images: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(images, classes, generator=generator, dtype=torch.float64) * 5
    expected = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(entropy(logits), expected)


def test_certain_predictions_have_no_entropy_and_a_finite_gradient() -> None:
    logits = torch.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    found = entropy(logits)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert found.item() == 0
    assert torch.isfinite(gradient).all()


def test_the_threshold_is_a_fraction_of_the_largest_entropy() -> None:
    uniform = torch.zeros(1, 10)
    assert threshold(0.4, uniform) == pytest.approx(0.4 * math.log(10))
    assert threshold(1.0, uniform) == pytest.approx(entropy(uniform).item(), rel=1e-6)
