from __future__ import annotations

import pytest
import torch
from torch import nn

from realistic_tta.models.resnext import CifarResNeXt


def test_resnext_29_has_the_published_size() -> None:
    """RobustBench: 6.900 M parameters at 100 classes, 31 BatchNorm layers."""
    with torch.device("meta"):
        model = CifarResNeXt(29, 4, 32, 100)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert round(parameters / 1e6, 3) == 6.900
    assert sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == 31


def test_logits_are_the_classifier_on_the_features() -> None:
    model = CifarResNeXt(11, 4, 32, 100).eval()
    images = torch.rand(2, 3, 32, 32)
    features = model.features(images)
    assert features.shape == (2, 1024)
    logits = model(images)
    assert logits.shape == (2, 100)
    torch.testing.assert_close(logits, model.classifier(features))


def test_the_grouped_convolutions_have_the_published_shapes() -> None:
    """4 groups of 32 channels for each 64 of width; strides on the 3 x 3 of stages 2 and 3."""
    with torch.device("meta"):
        model = CifarResNeXt(29, 4, 32, 100)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert shapes["stage_1.0.conv_conv.weight"] == (128, 32, 3, 3)
    assert shapes["stage_2.1.conv_reduce.weight"] == (256, 512, 1, 1)
    assert shapes["stage_3.2.conv_expand.weight"] == (1024, 512, 1, 1)
    assert shapes["stage_3.0.downsample.0.weight"] == (1024, 512, 1, 1)
    strides = {
        name: module.stride[0]
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and module.stride != (1, 1)
    }
    assert strides == {
        f"stage_{stage}.0.{part}": 2 for stage in (2, 3) for part in ("conv_conv", "downsample.0")
    }


def test_other_depths_are_refused() -> None:
    with pytest.raises(ValueError, match="depth is 30; expected 9 n"):
        CifarResNeXt(30, 4, 32, 10)
