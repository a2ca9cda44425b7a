from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest
import torch
from subjects import CPU, convolutional, images, on_cpu, randomize, residual, same, snapshot
from torch import Tensor, nn

from realistic_tta import InputError, ModelError, adapt
from realistic_tta.layers.adaptive_batch_norm import AdaptiveBatchNorm, RuleSlot
from realistic_tta.layers.replacement import (
    is_batch_norm,
    layers_with_parameters,
    other_normalizations,
    replace_batch_norms,
    restore_batch_norms,
)


def test_replacing_and_restoring_leaves_the_model_as_it_was() -> None:
    model = convolutional()
    before, modules = snapshot(model), list(model.modules())
    replaced, layers = replace_batch_norms(model, RuleSlot())
    assert replaced is model
    assert [layer.name for layer in layers] == ["1", "4", "7"]
    assert not any(is_batch_norm(module) for module in model.children())
    restored = restore_batch_norms(model)
    assert restored is model
    assert all(a is b for a, b in zip(modules, restored.modules(), strict=True))
    assert same(before, snapshot(restored))


CLASSES: dict[str, dict[str, Any]] = {
    method: {"classes": 10} for method in ("tema", "rectified_tema")
}


class Scaled(nn.BatchNorm2d):
    """A BatchNorm with a layer of its own inside."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.scale = nn.Conv2d(channels, channels, 1)

    def forward(self, batch: Tensor) -> Tensor:
        scaled: Tensor = self.scale(super().forward(batch))
        return scaled


@pytest.mark.parametrize("kind", ["nested", "root", "convolutional"])
def test_parameters_are_named_as_in_the_original(kind: str) -> None:
    models: dict[str, nn.Module] = {
        "nested": nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(Scaled(4), nn.BatchNorm2d(4))),
        "root": Scaled(3),
        "convolutional": convolutional(),
    }
    model = models[kind]
    expected = {name: id(parameter) for name, parameter in model.named_parameters()}
    for root in (model, replace_batch_norms(model, RuleSlot())[0]):
        found = {
            f"{name}.{own}" if name else own: id(parameter)
            for name, layer in layers_with_parameters(root)
            for own, parameter in layer.named_parameters(recurse=False)
        }
        assert found == expected


def test_a_batch_norm_at_the_root() -> None:
    with on_cpu():
        model = randomize(nn.BatchNorm2d(3))
    root, layers = replace_batch_norms(model, RuleSlot())
    assert isinstance(root, AdaptiveBatchNorm)
    assert layers == [root]
    assert restore_batch_norms(root) is model
    adapted = adapt(model, "tbn")
    batch = images(4)
    torch.testing.assert_close(adapted(batch), copy.deepcopy(model).train()(batch).detach())
    assert type(adapted.freeze()) is nn.BatchNorm2d


class Shared(nn.Module):
    """One BatchNorm in two places of the tree, each of which runs."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.BatchNorm2d(3)
        self.first: Any = nn.Sequential(OrderedDict(norm=norm, relu=nn.ReLU()))
        self.second: Any = nn.Sequential(OrderedDict(conv=nn.Conv2d(3, 3, 1), norm=norm))
        self.head = nn.Linear(3, 4)

    def forward(self, batch: Tensor) -> Tensor:
        return self.head(self.second(self.first(batch)).mean((2, 3)))  # type: ignore[no-any-return]


def test_one_module_in_two_places_stays_one_layer() -> None:
    """Both places are replaced by one adaptive layer, whose inputs count as one batch."""
    with on_cpu():
        model = Shared()
    adapted = adapt(randomize(model), "tbn")
    assert len(adapted.report().layers) == 1
    batch = images(6)
    torch.testing.assert_close(adapted(batch), copy.deepcopy(model).train()(batch).detach())
    plain = adapted.freeze()
    assert isinstance(plain, Shared)
    assert plain.first.norm is plain.second.norm
    with torch.no_grad():
        reached = [batch]
        hidden = model.first.relu(_standardize(model.first.norm, batch))
        reached.append(model.second.conv(hidden))
    pooled = torch.cat(reached)
    torch.testing.assert_close(plain.first.norm.running_mean, pooled.mean((0, 2, 3)))
    torch.testing.assert_close(
        plain.first.norm.running_var, pooled.var((0, 2, 3), correction=0), rtol=1e-4, atol=1e-5
    )


def _standardize(norm: nn.Module, batch: Tensor) -> Tensor:
    outputs: Tensor = copy.deepcopy(norm).train()(batch)
    return outputs


def test_two_passes_over_a_shared_layer_predict_with_one_set_of_statistics() -> None:
    with on_cpu():
        model = randomize(Shared())
    adapted = adapt(model, "rectified_tema")
    for seed in range(3):
        logits = adapted(images(5, seed))
    torch.testing.assert_close(adapted.freeze()(images(5, 2)).detach(), logits)


class Frozen(nn.Module):
    """Shares no class with torch's BatchNorm, as torchvision's FrozenBatchNorm2d."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name, value in [
            ("weight", 1.0),
            ("bias", 0.0),
            ("running_mean", 0.1),
            ("running_var", 2.0),
        ]:
            self.register_buffer(name, torch.full((channels,), value))
        self.eps = 1e-5

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]


FrozenBatchNorm2d = type("FrozenBatchNorm2d", (Frozen,), {})


class WithActivation(nn.BatchNorm2d):
    """A subclass that does more than normalize."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(min=0) + 7


def subjects() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    with on_cpu():
        lazy = nn.LazyBatchNorm2d()
        lazy(torch.rand(4, 3, 5, 5))
        return {
            "BatchNorm1d, two dimensions": (nn.BatchNorm1d(3), (6, 3)),
            "BatchNorm1d, three": (nn.BatchNorm1d(3), (6, 3, 5)),
            "BatchNorm2d": (nn.BatchNorm2d(3), (6, 3, 5, 5)),
            "BatchNorm2d, 1 x 1": (nn.BatchNorm2d(3), (6, 3, 1, 1)),
            "BatchNorm3d": (nn.BatchNorm3d(3), (6, 3, 2, 4, 4)),
            "SyncBatchNorm": (nn.SyncBatchNorm(3), (6, 3, 5, 5)),
            "LazyBatchNorm, materialized": (lazy, (6, 3, 5, 5)),
            "affine=False": (nn.BatchNorm2d(3, affine=False), (6, 3, 5, 5)),
            "other eps": (nn.BatchNorm2d(3, eps=0.1), (6, 3, 5, 5)),
            "subclass": (WithActivation(3), (6, 3, 5, 5)),
            "frozen look-alike": (FrozenBatchNorm2d(3), (6, 3, 5, 5)),
        }


@pytest.mark.parametrize("kind", subjects())
@pytest.mark.parametrize("method", ["tbn", "alpha_bn", "tema", "rectified_tema", "realistic"])
def test_every_kind_is_adapted_by_the_layers_own_forward(kind: str, method: str) -> None:
    """An adapted layer gives what the layer itself gives with the statistics in its buffers."""
    layer, shape = subjects()[kind]
    randomize(layer)
    adapted = adapt(layer, method, **CLASSES.get(method, {}))
    report = adapted.report()
    assert [(found.layer_type, found.channels) for found in report.layers] == [
        (type(layer).__name__, 3)
    ]
    for seed in range(3):
        batch = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2
        outputs = adapted(batch)
        plain = adapted.freeze()
        assert type(plain) is type(layer)
        torch.testing.assert_close(outputs, plain(batch).detach(), atol=1e-5, rtol=1e-4)
        assert not torch.allclose(outputs, layer.eval()(batch), atol=1e-3)


def published() -> dict[str, Any]:
    """Layers of timm and torchvision, the first with an activation of its own."""
    layers = pytest.importorskip("timm.layers")
    misc = pytest.importorskip("torchvision.ops.misc")
    with on_cpu():
        return {
            "BatchNormAct2d": randomize(layers.BatchNormAct2d(3)),
            "FrozenBatchNorm2d": misc.FrozenBatchNorm2d(3),
        }


@pytest.mark.parametrize("layer_type", ["BatchNormAct2d", "FrozenBatchNorm2d"])
def test_published_layers_normalize_by_the_batch_and_keep_the_rest(layer_type: str) -> None:
    layer, batch = published()[layer_type], images(5)
    found = adapt(nn.Sequential(layer), "tbn")
    assert [each.layer_type for each in found.report().layers] == [layer_type]
    expected = nn.functional.batch_norm(
        batch, None, None, layer.weight, layer.bias, training=True, eps=layer.eps
    )
    if layer_type == "BatchNormAct2d":
        expected = expected.relu()
    torch.testing.assert_close(found(batch), expected.detach(), atol=1e-5, rtol=1e-4)
    for method in ("realistic", "rectified_tema"):
        adapted = adapt(nn.Sequential(layer), method, **CLASSES.get(method, {}))
        outputs = adapted(batch)
        assert type(adapted.freeze().get_submodule("0")) is type(layer)
        torch.testing.assert_close(outputs, adapted.freeze()(batch).detach(), atol=1e-5, rtol=1e-4)


class Reads(nn.Module):
    """Reads attributes off its BatchNorm, as some models do."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, batch: Tensor) -> Tensor:
        return self.norm(batch) * self.norm.weight.sum() * self.norm.num_features  # type: ignore[no-any-return]


def test_attributes_of_the_batch_norm_are_still_there() -> None:
    with on_cpu():
        model = Reads()
    batch = images(3)
    expected = copy.deepcopy(model).train()(batch).detach()
    torch.testing.assert_close(adapt(model, "tbn")(batch), expected)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = adapt(model, "tbn").norm.nonsense


def test_lazy_layers_without_a_shape_are_named() -> None:
    with pytest.raises(ModelError, match=r'layer "0" \(LazyBatchNorm2d\).*run one batch'):
        adapt(nn.Sequential(nn.LazyBatchNorm2d()), "tbn")


@pytest.mark.parametrize("method", ["alpha_bn", "adapt_bn", "rectified_tema", "realistic"])
def test_layers_without_source_statistics_are_named(method: str) -> None:
    with on_cpu():
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=False))
    with pytest.raises(ModelError, match=r'layer "1" .*track_running_stats=False.*tbn'):
        adapt(model, method, **CLASSES.get(method, {}))


@pytest.mark.parametrize("method", ["tbn", "tema"])
def test_methods_that_need_no_source_take_such_layers(method: str) -> None:
    with on_cpu():
        model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), WithoutSource(3))
    adapted = adapt(model, method, **CLASSES.get(method, {}))
    batch = images(200)
    torch.testing.assert_close(adapted(batch), model(batch).detach(), atol=1e-3, rtol=1e-3)
    assert adapted.report().layers[0].divergence is None
    with pytest.raises(ModelError, match=r'"0" has track_running_stats=False.*cannot be frozen'):
        adapted.freeze()


class WithoutSource(WithActivation):
    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)


def test_no_batch_norm_says_what_there_is_instead() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.GroupNorm(1, 4), nn.LayerNorm(4)
    )
    with pytest.raises(ModelError, match=r"no BatchNorm layer; it has 2 GroupNorm, 1 LayerNorm"):
        adapt(model, "tbn")
    with pytest.raises(ModelError, match="no normalization at all"):
        adapt(nn.Linear(2, 2))
    with on_cpu():
        assert adapt(nn.Linear(2, 2), "source")(torch.rand(1, 2)).shape == (1, 2)


def test_other_normalizations_are_listed_with_the_reason() -> None:
    tracking = nn.InstanceNorm2d(3, track_running_stats=True)
    model = nn.ModuleDict(
        {
            "batch": nn.BatchNorm2d(3),
            "group": nn.GroupNorm(1, 3),
            "layer": nn.LayerNorm(3),
            "root mean square": nn.RMSNorm(3),
            "response": nn.LocalResponseNorm(3),
            "instance": nn.InstanceNorm2d(3),
            "tracking": tracking,
            "weights": nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
            "linear": nn.Linear(3, 3),
        }
    )
    found = {name: reason for name, _, reason in other_normalizations(model)}
    assert "not adapted" in found.pop("tracking")
    assert set(found) == {"group", "layer", "root mean square", "response", "instance"}
    assert all("each image by itself" in reason for reason in found.values())
    assert not list(other_normalizations(residual()))  # its Normalize scales colors


def test_a_variance_too_large_for_half_precision_is_not_frozen() -> None:
    with on_cpu():
        model = nn.Sequential(nn.BatchNorm2d(3).half())
    adapted = adapt(model, "tbn")
    adapted((torch.rand(8, 3, 4, 4) * 6e4).half())
    with pytest.raises(ModelError, match=r'layer "0" does not fit .*float16'):
        adapted.freeze()


def test_a_single_value_per_channel_names_the_layer() -> None:
    with on_cpu():
        model = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 2)
        )
    for method in ("tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema"):
        adapted = adapt(model, method)
        before = snapshot(adapted)
        with pytest.raises(
            InputError, match=r'layer "1" .*\(1, 3, 1, 1\).*no variance.*2 or more images'
        ):
            adapted(images(1))
        assert same(before, snapshot(adapted))
        assert torch.isfinite(adapted(images(2))).all()


def test_overflow_inside_the_model_names_the_layer() -> None:
    """Finite images, infinite activations: an error, and no statistic is poisoned."""
    with on_cpu():
        body = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(576, 2))
    for method in ("tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema", "realistic"):
        adapted = adapt(body, method)
        adapted(images(2))
        before = snapshot(adapted)
        with pytest.raises(
            InputError, match='layer "1" measured NaN or Inf, though the images are'
        ):
            adapted(images(2) * 1e38)
        assert same(before, snapshot(adapted))


def test_a_broken_checkpoint_names_the_layer() -> None:
    model = convolutional()
    model.get_submodule("4").get_buffer("running_var")[3] = float("nan")
    with pytest.raises(ModelError, match='layer "4" has NaN or Inf in its source statistics'):
        adapt(model)


def test_torchscript_is_refused_or_reported() -> None:
    with on_cpu():
        part = convolutional()
        mixed = nn.Sequential(nn.BatchNorm2d(3), _scripted(part))
    with pytest.raises(ModelError, match="no BatchNorm layer"):
        adapt(_scripted(part), "tbn")
    reasons = [left.reason for left in adapt(mixed, "tbn").report().skipped_layers]
    assert any("TorchScript" in reason for reason in reasons)


def _scripted(module: nn.Module) -> nn.Module:
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        traced: nn.Module = torch.jit.trace(module, images(2))
    return traced


def test_wrappers_are_looked_through() -> None:
    model = convolutional()
    expected = adapt(model)(images(4))
    wrappers: list[Any] = [nn.DataParallel(model), torch.compile(model, backend="eager")]
    for wrapper in wrappers:
        adapted = adapt(wrapper)
        assert torch.equal(adapted(images(4)), expected)
    assert next(model.parameters()).device == CPU


def test_a_model_that_cannot_be_copied_is_named() -> None:
    model = convolutional()
    model.register_buffer("cache", torch.rand(2, requires_grad=True) * 2)
    with pytest.raises(ModelError, match="cannot be copied"):
        adapt(model)
