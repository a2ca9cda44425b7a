from __future__ import annotations

import copy

import pytest
import torch
from subjects import convolutional, images, residual, stream
from torch import nn

from realistic_tta import SettingError, adapt


def in_train_mode(network: nn.Module) -> nn.Module:
    """torch's own BatchNorm on batch statistics, dropout off."""
    network = copy.deepcopy(network)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
    return network


@pytest.mark.parametrize("size", [200, 16, 3, 1])
def test_tbn_is_torchs_batch_norm_in_train_mode(size: int) -> None:
    network = residual()
    batch = images(size, side=16)
    expected = in_train_mode(network)(batch).detach()
    torch.testing.assert_close(adapt(network, "tbn")(batch), expected, atol=1e-4, rtol=1e-4)


def test_tbn_carries_nothing_from_batch_to_batch() -> None:
    network = convolutional()
    adapted = adapt(network, "tbn")
    for batch in stream([7, 2, 30]):
        assert torch.equal(adapted(batch), adapt(network, "tbn")(batch))


@pytest.mark.parametrize("momentum", [0.1, 0.5, 1.0])
def test_tema_keeps_torchs_running_statistics(momentum: float) -> None:
    """One layer in train mode, started at 0 and 1, has the same running mean and variance."""
    reference = nn.BatchNorm2d(3, momentum=momentum).train()
    adapted = adapt(copy.deepcopy(reference), "tema", momentum=momentum)
    for batch in stream([5, 2, 9]):
        reference(batch)
        outputs = adapted(batch)
        torch.testing.assert_close(adapted.get_buffer("target_mean"), reference.running_mean)
        torch.testing.assert_close(adapted.get_buffer("target_variance"), reference.running_var)
        torch.testing.assert_close(outputs, copy.deepcopy(reference).eval()(batch).detach())


def one_layer() -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(3).eval()
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.running_mean += 0.2
    layer.running_var *= 3
    return layer


@pytest.mark.parametrize(
    ("method", "settings", "weight"),
    [
        ("alpha_bn", {}, 0.9),
        ("alpha_bn", {"target_weight": 0.5}, 0.5),
        ("adapt_bn", {}, 16 / 20),
        ("adapt_bn", {"pseudo_samples": 4}, 0.5),
        ("adapt_bn", {"pseudo_samples": 0}, 0.0),
    ],
)
def test_linear_mixes_by_hand(method: str, settings: dict[str, float], weight: float) -> None:
    """weight parts of source (mean 0.2, variance 3), the rest batch, unbiased; four images."""
    batch = images(4)
    adapted = adapt(one_layer(), method, **settings)  # type: ignore[arg-type]
    variance, mean = torch.var_mean(batch, dim=(0, 2, 3), keepdim=True)
    mean = weight * 0.2 + (1 - weight) * mean
    variance = weight * 3 + (1 - weight) * variance
    expected = (batch - mean) / torch.sqrt(variance + 1e-5)
    torch.testing.assert_close(adapted(batch), expected, atol=1e-5, rtol=1e-5)
    assert adapted.report().layers[0].source_weight == pytest.approx(weight)


def test_adapt_bn_follows_the_size_of_each_batch() -> None:
    adapted = adapt(convolutional(), "adapt_bn")
    for size in (4, 48, 1):
        adapted(images(size))
        weight = adapted.report().layers[0].source_weight
        assert weight == pytest.approx(16 / (16 + size))


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("alpha_bn", {"target_weight": 1.5}, "target_weight is 1.5; expected a number from 0 to 1"),
        ("alpha_bn", {"target_weight": "half"}, "target_weight is 'half'; expected a number"),
        (
            "adapt_bn",
            {"pseudo_samples": -1},
            "pseudo_samples is -1; expected a number of 0 or more",
        ),
        ("adapt_bn", {"pseudo_samples": float("inf")}, "pseudo_samples is inf; expected"),
        ("rectified_tema", {"passes": 3}, "passes is 3; expected 1 or 2"),
        ("tema", {"start": "zero"}, "start is 'zero'; expected"),
        ("tema", {"momentum": 0}, "momentum is 0, so that no batch would count"),
        ("tema", {"momentum": 1.5}, "is 1.5; expected a number from 0 to 1"),
        ("tema", {"momentum": "fast"}, "momentum .* is 'fast'; expected a number"),
        ("tema", {"momentum": float("nan")}, "momentum .* is nan; expected a number"),
        ("tema", {"classes": 0}, "classes is 0; expected a whole number of 1 or more"),
        ("tema", {"classes": 2.5}, "classes is 2.5; expected a whole number"),
        ("tema", {"source_batch_size": -8}, "source_batch_size is -8"),
        ("tbn", {"momentum": 0.1}, "tbn takes no momentum; tema and rectified_tema do"),
        (
            "alpha_bn",
            {"target_wieght": 0.1},
            'unknown setting "target_wieght"; did you mean "target_weight"',
        ),
        ("tbn", {"passes": 1}, 'tbn has no setting "passes"; rectified_tema takes it'),
        ("tmea", {}, 'unknown method "tmea"; did you mean "tema"'),
        ("resnet", {}, "expected one of: .*adapt_bn, alpha_bn"),
    ],
)
def test_wrong_settings_are_answered(method: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        adapt(convolutional(), method, **settings)  # type: ignore[arg-type]
