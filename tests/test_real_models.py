"""Public models as their authors publish them: timm's and torchvision's classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import images, on_cpu, randomize, stream
from torch import Tensor, nn

from realistic_tta import METHODS, adapt, load

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")


def build(name: str) -> nn.Module:
    with on_cpu():
        if name.startswith("timm/"):
            model: nn.Module = timm.create_model(name.removeprefix("timm/"), num_classes=10)
        else:
            model = getattr(torchvision.models, name)(num_classes=10)
    return randomize(model)


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
def test_every_batch_norm_of_a_public_model_is_adapted(name: str) -> None:
    """Adapted, frozen and plain agree: nothing a layer does besides normalizing is lost."""
    model = build(name)
    layers = sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    adapted = adapt(model)
    for batch in stream([8, 3, 1], side=64):
        logits = adapted(batch)
        with torch.no_grad():
            plain = adapted.freeze()(batch)
        torch.testing.assert_close(logits, plain, atol=1e-4, rtol=1e-3)
    assert len(adapted.report().layers) == layers > 10


def activation_model(forget: bool) -> nn.Module:
    """timm's BatchNormAct2d with its activation, or with a plain BatchNorm in its place."""
    with on_cpu():
        norm = nn.BatchNorm2d(6) if forget else timm.layers.BatchNormAct2d(6)
        layers = [nn.Conv2d(3, 6, 3), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)]
        return randomize(nn.Sequential(*layers))


@pytest.mark.parametrize("method", METHODS)
def test_timms_activation_survives(method: str) -> None:
    batch = images(8)
    with_activation = adapt(activation_model(forget=False), method)(batch)
    without = adapt(activation_model(forget=True), method)(batch)
    assert not torch.allclose(with_activation, without, atol=1e-3)


def test_timms_activation_is_applied_to_the_adapted_statistics() -> None:
    model = activation_model(forget=False)
    hidden: dict[str, Tensor] = {}
    adapted = adapt(model, "tbn")
    norm = adapted.get_submodule("1")
    norm.register_forward_hook(lambda _m, inputs, output: hidden.update(i=inputs[0], o=output))
    adapted(images(8))
    layer: Any = model[1]  # type: ignore[index]
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


def test_a_segmentation_model_gives_its_dictionary() -> None:
    with on_cpu():
        model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )
    adapted = adapt(randomize(model), guard=True, nonfinite="skip")
    assert adapted(images(2, side=64))["out"].shape == (2, 5, 64, 64)


def plain_tent(model: nn.Module, batches: list[Tensor]) -> list[Tensor]:
    """Tent as its authors wrote it: BatchNorm in train mode without running statistics."""
    model.requires_grad_(requires_grad=False)
    trained: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = None
            trained += [each.requires_grad_() for each in module.parameters(recurse=False)]
    optimizer, found = torch.optim.Adam(trained, lr=1e-3), []
    for batch in batches:
        logits = model(batch)
        loss = torch.distributions.Categorical(logits=logits).entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(logits.detach())
    return found


@pytest.mark.parametrize("name", ["resnet18", "timm/mobilenetv3_small_050"])
def test_a_public_model_is_trained_as_by_a_plain_program(name: str) -> None:
    adapted, batches = adapt(build(name), "tent"), stream([6, 3], side=64)
    for batch, logits in zip(batches, plain_tent(build(name), batches), strict=True):
        torch.testing.assert_close(adapted(batch), logits, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["resnet18", "timm/mobilenetv3_small_050"])
def test_all_wrappers_work_around_a_public_model(name: str, tmp_path: Path) -> None:
    adapted = adapt(build(name), flip=True, smooth_labels=True, guard=True, nonfinite="skip")
    for batch in stream([5, 1], side=64):
        assert torch.isfinite(adapted(batch)).all()
    adapted.save(tmp_path / "state")
    batch = images(2, seed=5, side=64)
    assert torch.equal(load(tmp_path / "state", build(name))(batch), adapted(batch))


def test_a_transformer_is_trained_by_its_layer_norms() -> None:
    with on_cpu():
        model = timm.create_model("vit_tiny_patch16_224", num_classes=10, img_size=32, patch_size=8)
    for method, count in (("tent", 50), ("sar", 36)):  # sar leaves out three blocks and the last
        adapted = adapt(model, method)
        assert len(adapted.report().trained) == count
        for size in (4, 1):
            assert torch.isfinite(adapted(images(size, side=32))).all()
        assert type(adapted.freeze()) is type(model)
