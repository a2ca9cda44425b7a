from __future__ import annotations

import copy

import pytest
import torch
from subjects import convolutional, images, residual, stream
from torch import nn

from realistic_tta import OptionError, adapt


def in_train_mode(model: nn.Module) -> nn.Module:
    """torch's own BatchNorm on batch statistics, dropout off."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
    return model


@pytest.mark.parametrize("size", [60, 16, 3, 1])
def test_tbn_is_torchs_batch_norm_in_train_mode(size: int) -> None:
    model = residual()
    batch = images(size, side=16)
    expected = in_train_mode(model)(batch).detach()
    torch.testing.assert_close(adapt(model, "tbn")(batch), expected, atol=1e-4, rtol=1e-4)


def test_tbn_carries_nothing_from_batch_to_batch() -> None:
    model = convolutional()
    adapted = adapt(model, "tbn")
    for batch in stream([7, 2, 30]):
        assert torch.equal(adapted(batch), adapt(model, "tbn")(batch))


def test_the_frozen_copy_predicts_with_the_statistics_of_the_last_batch() -> None:
    adapted = adapt(convolutional(), "tbn")
    for batch in stream([7, 30]):
        outputs = adapted(batch)
        torch.testing.assert_close(adapted.freeze()(batch).detach(), outputs)
    assert {layer.source_weight for layer in adapted.report().layers} == {0.0}


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("tbn", {"momentum": 0.1}, 'tbn has no option "momentum"; .*tema and rectified_tema do'),
        ("tbn", {"passes": 1}, 'tbn has no option "passes"; rectified_tema does'),
        ("tmea", {}, 'unknown method "tmea"; did you mean "tema"'),
        ("resnet", {}, "expected one of: .*adapt_bn, alpha_bn"),
    ],
)
def test_methods_and_options_that_do_not_exist_raise(
    method: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        adapt(convolutional(), method, **options)  # type: ignore[arg-type]
