"""Rows of statistics: each as if its batch were alone, and the average as a plain loop has it."""

from __future__ import annotations

import pytest
import torch

from realistic_tta.functional.batch_by_batch import (
    Batches,
    average_each,
    average_weights,
    measure_each,
    source_weights_each,
)
from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.rectification import divergence, source_weights

DRAWS = torch.Generator().manual_seed(0)
SIZES = [3, 1, 4, 2]


def draw(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=DRAWS, dtype=torch.float64)


@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("positions", [(5,), (4, 3), (2, 3, 2), (300, 301)])
def test_each_row_is_what_numpy_finds_in_its_batch(
    positions: tuple[int, ...], correction: int
) -> None:
    inputs = 100 + draw(10, 2, *positions)  # a mean far above the deviation
    mean, variance = measure_each(inputs, Batches.of(SIZES, inputs), correction)
    for row, batch in enumerate(inputs.split(SIZES)):
        values = batch.transpose(0, 1).flatten(start_dim=1).numpy()  # (channel, value)
        assert mean[row].numpy() == pytest.approx(values.mean(1), rel=1e-12)
        assert variance[row].numpy() == pytest.approx(values.var(1, ddof=correction), rel=1e-9)


def test_float32_keeps_its_digits_where_the_mean_is_large() -> None:
    inputs = (1000 + draw(6, 2, 16, 16)).float()
    _, variance = measure_each(inputs, Batches.of([2] * 3, inputs))
    exact = measure_each(inputs.double(), Batches.of([2] * 3, inputs.double())).variance
    torch.testing.assert_close(variance.double(), exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize("momenta", [[0.1] * 5, [0.1, 1.0, 0.3, 0.3, 0.01], [1.0]])
def test_the_average_is_that_of_a_plain_loop(momenta: list[float]) -> None:
    start, values = draw(3), draw(len(momenta), 3)
    found = average_each(start, values, average_weights(momenta, start))
    average = start
    for row, momentum in enumerate(momenta):
        average = momentum * values[row] + (1 - momentum) * average
        torch.testing.assert_close(found[row], average, rtol=1e-12, atol=0)


def test_what_start_and_batches_weigh_adds_up_to_one() -> None:
    weights = average_weights([0.2, 0.9, 0.05], draw(1))
    torch.testing.assert_close(weights.sum(1), torch.ones(3, dtype=torch.float64))
    assert torch.equal(weights[:, 1:].triu(1), torch.zeros(3, 3, dtype=torch.float64))


def test_each_row_of_weights_is_what_its_batch_calls_for() -> None:
    channels = torch.tensor([2, 3, 1])
    source = ChannelStatistics(draw(6), draw(6) + 0.5)
    target = ChannelStatistics(draw(4, 6), draw(4, 6) + 0.5)
    found = source_weights_each(source, target, channels)
    for row in range(4):
        alone = ChannelStatistics(target.mean[row], target.variance[row])
        expected = source_weights(divergence(source, alone, channels))
        torch.testing.assert_close(found[row], expected)
