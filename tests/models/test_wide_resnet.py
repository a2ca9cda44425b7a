from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from realistic_tta.models.resnet import Normalize
from realistic_tta.models.wide_resnet import PreactivationBlock, WideResNet


def count(model: nn.Module) -> tuple[int, int]:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    layers = sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    return parameters, layers


@pytest.mark.parametrize(
    ("depth", "width", "millions", "layers"),
    [(28, 10, 36.48, 25), (40, 2, 2.24, 37), (16, 2, 0.69, 13)],
)
def test_sizes_are_the_published_ones(depth: int, width: int, millions: float, layers: int) -> None:
    with torch.device("meta"):
        parameters, found = count(WideResNet(depth, width, 10))
    assert round(parameters / 1e6, 2) == millions
    assert found == layers


def test_wrn_28_10_has_the_published_count_to_the_last_parameter() -> None:
    with torch.device("meta"):
        assert count(WideResNet(28, 10, 10))[0] == 36_479_194


def test_logits_are_the_classifier_on_the_features() -> None:
    model = WideResNet(16, 2, 10).eval()
    images = torch.rand(3, 3, 32, 32)
    features = model.features(images)
    assert features.shape == (3, 128)
    logits = model(images)
    assert logits.shape == (3, 10)
    torch.testing.assert_close(logits, model.fc(features))


def test_normalization_is_the_first_thing_done() -> None:
    """A normalizing model sees an image as the plain one sees it normalized."""
    normalize = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    plain, inside = WideResNet(10, 1, 10).eval(), WideResNet(10, 1, 10, normalize).eval()
    inside.load_state_dict(plain.state_dict())
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(inside(images), plain(2 * images - 1))


def randomise(module: nn.Module) -> None:
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) * 0.5 + 0.1)


def activate(x: Tensor, bn: nn.BatchNorm2d) -> Tensor:
    assert bn.running_mean is not None
    assert bn.running_var is not None
    scale = bn.weight / (bn.running_var + bn.eps).sqrt()
    x = (x - bn.running_mean[:, None, None]) * scale[:, None, None] + bn.bias[:, None, None]
    return x.clamp(min=0)


@pytest.mark.parametrize(("inputs", "stride"), [(6, 1), (4, 2)])
def test_a_block_is_the_published_formula(inputs: int, stride: int) -> None:
    """With as many channels out as in, the shortcut is the raw input; else the activated one."""
    block = PreactivationBlock(inputs, 6, stride).eval()
    randomise(block)
    x = torch.randn(2, inputs, 8, 8)
    active = activate(x, block.bn1)
    inner = functional.conv2d(active, block.conv1.weight, stride=stride, padding=1)
    residual = functional.conv2d(activate(inner, block.bn2), block.conv2.weight, padding=1)
    if block.convShortcut is None:
        expected = x + residual
    else:
        expected = functional.conv2d(active, block.convShortcut.weight, stride=stride) + residual
    torch.testing.assert_close(block(x.clone()), expected)


def test_other_depths_are_refused() -> None:
    with pytest.raises(ValueError, match="depth is 20; expected 6 n"):
        WideResNet(20, 2, 10)
