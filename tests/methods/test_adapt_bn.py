from __future__ import annotations

import pytest
import torch
from methods.one_layer import linear_mix, one_layer
from subjects import convolutional, images, stream

from realistic_tta import OptionError, adapt


@pytest.mark.parametrize(
    ("options", "source_weight"),
    [({}, 16 / 20), ({"pseudo_samples": 4}, 0.5), ({"pseudo_samples": 0}, 0.0)],
)
def test_source_and_a_batch_of_four_are_mixed_linearly(
    options: dict[str, float], source_weight: float
) -> None:
    batch = images(4)
    adapted = adapt(one_layer(), "adapt_bn", **options)  # type: ignore[arg-type]
    torch.testing.assert_close(
        adapted(batch), linear_mix(batch, source_weight), atol=1e-5, rtol=1e-5
    )
    assert adapted.report().layers[0].source_weight == pytest.approx(source_weight)


def test_the_source_weight_follows_the_size_of_each_batch() -> None:
    adapted = adapt(one_layer(), "adapt_bn")
    for size in (4, 48, 1):
        source_weight = 16 / (16 + size)
        torch.testing.assert_close(
            adapted(images(size)), linear_mix(images(size), source_weight), atol=1e-5, rtol=1e-5
        )
        assert adapted.report().layers[0].source_weight == pytest.approx(source_weight)


def test_adapt_bn_carries_nothing_from_batch_to_batch() -> None:
    adapted = adapt(convolutional(), "adapt_bn")
    for batch in stream([7, 2, 30]):
        assert torch.equal(adapted(batch), adapt(convolutional(), "adapt_bn")(batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pseudo_samples": -1}, "pseudo_samples is -1; expected a number of 0 or more"),
        ({"pseudo_samples": float("inf")}, "pseudo_samples is inf; expected"),
    ],
)
def test_wrong_hyperparameters_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        adapt(convolutional(), "adapt_bn", **options)  # type: ignore[arg-type]
