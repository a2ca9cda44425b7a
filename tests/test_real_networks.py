"""Public networks as their authors publish them: timm's and torchvision's classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from methods.plain_training import tent
from subjects import images, on_cpu, randomize, stream
from torch import Tensor, nn

from realistic_tta import METHODS, adapt

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")


def build(name: str) -> nn.Module:
    with on_cpu():
        if name.startswith("timm/"):
            network: nn.Module = timm.create_model(name.removeprefix("timm/"), num_classes=10)
        else:
            network = getattr(torchvision.models, name)(num_classes=10)
    return randomize(network)


NAMES = [
    "resnet18",
    "densenet121",
    "shufflenet_v2_x0_5",
    "timm/mobilenetv3_small_050",
    "timm/efficientnet_lite0",
    "timm/ecaresnet26t",
    "timm/repvgg_a0",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_batch_norm_of_a_public_network_is_adapted(name: str) -> None:
    """Adapted, frozen and plain agree: nothing a layer does besides normalising is lost."""
    network = build(name)
    layers = sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules())
    adapted = adapt(network, label_runs=False, mirror=0)  # layers alone, as a plain copy has them
    for batch in stream([8, 3, 1], side=64):
        logits = adapted(batch)
        with torch.no_grad():
            plain = adapted.freeze()(batch)
        torch.testing.assert_close(logits, plain, atol=1e-4, rtol=1e-3)
    assert len(adapted.report().layers) == layers > 10


def activation_network(forget: bool) -> nn.Module:
    """timm's BatchNormAct2d with its activation, or with a plain BatchNorm in its place."""
    with on_cpu():
        norm = nn.BatchNorm2d(6) if forget else timm.layers.BatchNormAct2d(6)
        layers = [nn.Conv2d(3, 6, 3), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)]
        return randomize(nn.Sequential(*layers))


@pytest.mark.parametrize("method", METHODS)
def test_timms_activation_survives(method: str) -> None:
    batch = images(8)
    with_activation = adapt(activation_network(forget=False), method)(batch)
    without = adapt(activation_network(forget=True), method)(batch)
    assert not torch.allclose(with_activation, without, atol=1e-3)


def test_timms_activation_is_applied_to_the_adapted_statistics() -> None:
    network = activation_network(forget=False)
    hidden: dict[str, Tensor] = {}
    adapted = adapt(network, "tbn")
    norm = adapted.network.get_submodule("1")
    norm.register_forward_hook(lambda _m, inputs, output: hidden.update(i=inputs[0], o=output))
    adapted(images(8))
    layer: Any = network[1]  # type: ignore[index]
    expected = torch.nn.functional.batch_norm(
        hidden["i"], None, None, layer.weight, layer.bias, training=True, eps=layer.eps
    ).relu()
    torch.testing.assert_close(hidden["o"], expected.detach(), atol=1e-5, rtol=1e-4)


def test_torchvisions_frozen_batch_norm_is_adapted() -> None:
    with on_cpu():
        norm = torchvision.ops.FrozenBatchNorm2d(3)
    adapted = adapt(norm, "tbn")
    batch = images(6) * 3
    outputs = adapted(batch)
    torch.testing.assert_close(outputs.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(outputs.var((0, 2, 3)), torch.ones(3), atol=1e-2, rtol=0)
    assert type(adapted.freeze()) is torchvision.ops.FrozenBatchNorm2d


def test_a_segmentation_network_gives_its_dictionary() -> None:
    with on_cpu():
        network = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )
    adapted = adapt(randomize(network), classes=5)
    assert adapted(images(2, side=64))["out"].shape == (2, 5, 64, 64)


@pytest.mark.parametrize("name", ["resnet18", "timm/mobilenetv3_small_050", "timm/resnet10t"])
def test_a_public_network_is_trained_as_by_a_plain_program(name: str) -> None:
    adapted = adapt(build(name), "tent")
    expected = tent(build(name), stream([6, 3], side=64), torch.optim.Adam, lr=1e-3)
    for batch, logits in zip(stream([6, 3], side=64), expected, strict=True):
        torch.testing.assert_close(adapted(batch), logits, atol=2e-3, rtol=1e-3)


def test_a_transformer_is_trained_by_its_layer_norms() -> None:
    with on_cpu():
        network = timm.create_model(
            "vit_tiny_patch16_224", num_classes=10, img_size=32, patch_size=8
        )
    for method, count in (("tent", 50), ("sar", 36)):  # sar leaves out three blocks and the last
        adapted = adapt(network, method)
        assert len(adapted.report().trained) == count
        for size in (4, 1):
            assert torch.isfinite(adapted(images(size, side=32))).all()
        assert type(adapted.freeze()) is type(network)
