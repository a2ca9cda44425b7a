from __future__ import annotations

import pytest
import torch
from subjects import on_cpu
from torch import nn

from realistic_tta.models.resnet import CifarResNet, ProjectionResNet, ResNet50


def count(model: nn.Module) -> tuple[int, int]:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    layers = sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    return parameters, layers


def test_resnet_20_has_the_published_size() -> None:
    """He 2016: 0.27 M parameters, a BatchNorm for each of 19 convolutions."""
    parameters, layers = count(CifarResNet(20, 10))
    assert round(parameters / 1e6, 2) == 0.27
    assert layers == 19


def test_a_projection_resnet_takes_raw_images_and_has_convolutions_as_shortcuts() -> None:
    """He 2016, option B: 1 x 1 where the width changes, at stride 2."""
    with on_cpu():
        model = ProjectionResNet(8, 10).eval()
    shortcuts = [
        (name, module.stride)
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)
    ]
    assert shortcuts == [(f"layer{stage}.0.downsample.0", (2, 2)) for stage in (2, 3)]
    images = torch.rand(2, 3, 32, 32)
    seen: list[torch.Tensor] = []
    model.conv1.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert model(images).shape == (2, 10)
    assert torch.equal(seen[0], images)


def test_resnet_50_is_torchvisions() -> None:
    """Same names and shapes, so that its checkpoints load; same logits for the same weights."""
    models = pytest.importorskip("torchvision.models")
    with on_cpu():
        theirs, ours = models.resnet50(weights=None).eval(), ResNet50().eval()
    assert count(ours) == (25_557_032, 53)
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = theirs(ours.normalize(images))
        torch.testing.assert_close(ours(images), expected, atol=1e-4, rtol=1e-4)
        assert ours.features(images).shape == (2, 2048)


def test_other_depths_are_refused() -> None:
    with pytest.raises(ValueError, match="depth is 21; expected 6 n"):
        CifarResNet(21, 10)
