from __future__ import annotations

import pytest
import torch
from methods.one_layer import linear_mix, one_layer
from subjects import convolutional, images, stream

from realistic_tta import OptionError, adapt


@pytest.mark.parametrize(("options", "source_weight"), [({}, 0.9), ({"target_weight": 0.5}, 0.5)])
def test_source_and_batch_are_mixed_linearly(
    options: dict[str, float], source_weight: float
) -> None:
    adapted = adapt(one_layer(), "alpha_bn", **options)  # type: ignore[arg-type]
    for batch in (images(4), images(1)):
        torch.testing.assert_close(
            adapted(batch), linear_mix(batch, source_weight), atol=1e-5, rtol=1e-5
        )
        assert adapted.report().layers[0].source_weight == pytest.approx(source_weight)


def test_a_target_weight_of_0_is_the_source() -> None:
    model = convolutional()
    torch.testing.assert_close(
        adapt(model, "alpha_bn", target_weight=0)(images(4)), model(images(4)).detach()
    )


def test_alpha_bn_carries_nothing_from_batch_to_batch() -> None:
    adapted = adapt(convolutional(), "alpha_bn")
    for batch in stream([7, 2, 30]):
        assert torch.equal(adapted(batch), adapt(convolutional(), "alpha_bn")(batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_weight": 1.5}, "target_weight is 1.5; expected a number from 0 to 1"),
        ({"target_weight": "half"}, "target_weight is 'half'; expected a number"),
        ({"target_wieght": 0.1}, 'unknown option "target_wieght"; did you mean "target_weight"'),
    ],
)
def test_wrong_hyperparameters_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        adapt(convolutional(), "alpha_bn", **options)  # type: ignore[arg-type]
