"""The parts that tent, eta and sar share, tested with tent."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from methods._training.plain_training import tent
from methods.method_state import method_state
from subjects import convolutional, images, on_cpu, randomize, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import InputError, ModelError, adapt


def classifier(*normalizations: nn.Module) -> nn.Module:
    """Convolutions of four channels, each followed by one of the normalizations."""
    modules: list[nn.Module] = []
    with on_cpu():
        for place, normalization in enumerate(normalizations):
            modules += [nn.Conv2d(4 if place else 3, 4, 3), normalization, nn.ReLU()]
        modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)]
    return randomize(nn.Sequential(*modules))


def test_every_normalization_with_parameters_is_trained() -> None:
    model = classifier(
        nn.GroupNorm(2, 4),
        nn.BatchNorm2d(4),
        nn.InstanceNorm2d(4, affine=True),
        nn.BatchNorm2d(4, affine=False),
        nn.GroupNorm(1, 4, affine=False),
    )
    report = adapt(model, "tent").report()
    assert report.trained == tuple(f"{n}.{part}" for n in (1, 4, 7) for part in ("weight", "bias"))
    assert [layer.name for layer in report.layers] == ["4", "10"]
    assert [(left.name, left.layer_type) for left in report.skipped_layers] == [("13", "GroupNorm")]
    assert "trained: 6 parameters\n  1  weight, bias\n  4  weight, bias\n" in str(report)


class Norm2d(nn.LayerNorm):
    """LayerNorm over channels, as several libraries have it."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def test_group_and_layer_norm_models_are_trained_as_by_a_plain_program() -> None:
    model = classifier(nn.GroupNorm(2, 4), Norm2d(4))
    adapted = adapt(model, "tent")
    trained = [own for name, own in model.named_parameters() if name[0] in "14"]
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    for batch in stream([4, 1, 7]):
        logits = model(batch)
        torch.testing.assert_close(adapted(batch), logits.detach(), atol=1e-5, rtol=1e-4)
        optimizer.zero_grad()
        torch.distributions.Categorical(logits=logits).entropy().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Linear(3, 2)), "it has no normalization at all"),
        (
            nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)),
            "it has 1 BatchNorm1d without parameters",
        ),
        (
            nn.Sequential(nn.LayerNorm(3, elementwise_affine=False), nn.Linear(3, 2)),
            "it has 1 LayerNorm without parameters",
        ),
    ],
)
@pytest.mark.parametrize("method", ["tent", "eta", "sar"])
def test_a_model_with_nothing_to_train_is_refused(
    method: str, model: nn.Module, words: str
) -> None:
    with pytest.raises(ModelError, match=f'{method} trains .*{words}.*method="source"'):
        adapt(model, method)


class Activated(nn.BatchNorm2d):
    """A subclass that does more than normalize, as timm's BatchNormAct2d."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.nn.functional.gelu(super().forward(inputs))


class Twice(nn.Module):
    """One BatchNorm in two places and used at both."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
            self.norm = nn.BatchNorm2d(4)
            self.again = self.norm
            self.head = nn.Linear(4, 5)

    def forward(self, batch: Tensor) -> Tensor:
        x = self.again(self.second(self.norm(self.first(batch)).relu()))
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


SUBJECTS: dict[str, nn.Module] = {
    "plain": convolutional(),
    "subclass": classifier(nn.BatchNorm2d(4), Activated(4), nn.BatchNorm2d(4)),
    "SyncBatchNorm": classifier(nn.SyncBatchNorm(4)),
    "no source statistics": classifier(nn.BatchNorm2d(4, track_running_stats=False)),
    "no parameters": classifier(nn.BatchNorm2d(4, affine=False), nn.BatchNorm2d(4)),
    "shared": randomize(Twice()),
}


def in_eval_mode(model: nn.Module) -> nn.Module:
    """SyncBatchNorm wants a GPU in train mode; an ordinary one stands in for it."""
    for name, module in list(model.named_children()):
        if isinstance(module, nn.SyncBatchNorm):
            plain = nn.BatchNorm2d(4)
            plain.load_state_dict(module.state_dict())
            model.add_module(name, plain)
    return model


@pytest.mark.parametrize("kind", SUBJECTS)
def test_every_kind_of_batch_norm_is_trained_as_by_a_plain_program(kind: str) -> None:
    adapted = adapt(SUBJECTS[kind], "tent")
    found = [adapted(batch) for batch in stream([8, 3, 1, 5])]
    plain = in_eval_mode(copy.deepcopy(SUBJECTS[kind]))
    expected = tent(plain, stream([8, 3, 1, 5]), torch.optim.Adam, lr=1e-3)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_a_frozen_look_alike_normalizes_by_the_batch_and_is_not_trained() -> None:
    """torchvision's keeps weights of 1 and 0 in buffers: it is a BatchNorm without parameters."""
    misc = pytest.importorskip("torchvision.ops.misc")
    frozen, plain = misc.FrozenBatchNorm2d(4), nn.BatchNorm2d(4, affine=False)
    adapted, expected = (
        adapt(classifier(nn.BatchNorm2d(4), layer), "tent") for layer in (frozen, plain)
    )
    assert adapted.report().trained == ("1.weight", "1.bias")
    for batch in stream([8, 3, 1]):
        torch.testing.assert_close(adapted(batch), expected(batch), atol=1e-5, rtol=1e-4)
    gradients = [method_state(each)["gradient_average"] for each in (adapted, expected)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-3)


def test_a_single_value_per_channel_is_an_error_that_names_the_layer() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.AdaptiveAvgPool2d(1),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(4, 5),
    )
    adapted = adapt(model, "tent")
    adapted(images(4))
    before = snapshot(adapted)
    with pytest.raises(InputError, match=r'layer "3" .*single value per channel'):
        adapted(images(1))
    assert same(before, snapshot(adapted))


class Forms(nn.Module):
    """Returns its logits in some form."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.body, self.form = convolutional(), form

    def forward(self, batch: Tensor) -> Any:
        logits = self.body(batch)
        return {
            "list": [batch, logits],
            "nested": {"size": batch.shape, "inner": (batch, {"logits": logits})},
            "none": {"text": "nothing"},
            "dense": logits[..., None, None],
            "whole": logits.argmax(dim=1, keepdim=True),
            "detached": logits.detach(),
        }[self.form]


def test_logits_are_found_in_lists_and_mappings_and_come_back_without_gradient() -> None:
    batch, expected = images(4), adapt(convolutional(), "tent")(images(4))
    listed = adapt(Forms("list"), "tent")(batch)
    assert torch.equal(listed[1], expected)
    nested = adapt(Forms("nested"), "tent")(batch)
    assert torch.equal(nested["inner"][1]["logits"], expected)
    assert nested["size"] == batch.shape
    assert not nested["inner"][1]["logits"].requires_grad


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("none", r"returned a dict with no tensor; expected logits of two dimensions"),
        ("dense", r"returned a Tensor with \(4, 5, 1, 1\); expected logits"),
        ("whole", r"returned a Tensor with \(4, 1\); expected logits"),
        ("detached", r"no gradient reaches the model's output"),
    ],
)
def test_outputs_without_logits_are_named_and_change_nothing(form: str, words: str) -> None:
    adapted = adapt(Forms(form), "tent")
    before = snapshot(adapted)
    with pytest.raises(ModelError, match=words):
        adapted(images(4))
    assert same(before, snapshot(adapted))


def test_a_step_that_overflows_is_refused_whole() -> None:
    model = convolutional()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(1e38)
        model.get_parameter("7.weight").mul_(1e6)
    adapted = adapt(model, "tent")
    before = snapshot(adapted)
    with pytest.raises(InputError, match="NaN or Inf"):
        adapted(images(4))
    assert same(before, snapshot(adapted))


def test_half_models_are_trained_in_single_precision() -> None:
    """A step of 1e-3 on weights near 1 is a quarter of what bfloat16 can tell apart."""
    adapted = adapt(convolutional().bfloat16(), "tent")
    start = method_state(adapted)["weights"].clone()
    assert start.dtype == torch.float32
    for batch in stream([8] * 3):
        assert torch.isfinite(adapted(batch.bfloat16())).all()
    moved = (method_state(adapted)["weights"] - start).abs()
    assert 1e-3 < moved.mean() <= moved.max() < 4e-3
    assert adapted.freeze().get_parameter("1.weight").dtype == torch.bfloat16


def test_the_frozen_copy_can_be_trained_as_the_original() -> None:
    model = convolutional()
    model.get_parameter("0.weight").requires_grad_(False)
    adapted = adapt(model, "tent")
    adapted(images(4))
    flags = [own.requires_grad for own in model.parameters()]
    assert [own.requires_grad for own in adapted.freeze().parameters()] == flags
    assert flags.count(False) == 1


def test_made_inside_inference_mode_it_still_learns() -> None:
    expected, outside = [], adapt(convolutional(), "tent").double()
    expected = [outside(batch.double()) for batch in stream([4, 4])]
    with torch.inference_mode():
        inside = adapt(convolutional(), "tent").double()
        found = [inside(batch.double()) for batch in stream([4, 4])]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


class Tied(nn.Module):
    """Two BatchNorms that share their parameters."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.convolution, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)
        self.one, self.two = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.two.weight = self.one.weight

    def forward(self, batch: Tensor) -> Tensor:
        logits: Tensor = self.head(self.two(self.one(self.convolution(batch)).relu()).mean((2, 3)))
        return logits


def test_tied_parameters_stay_tied() -> None:
    adapted = adapt(Tied(), "tent")
    assert adapted.report().trained == ("one.weight", "one.bias", "two.bias")
    found = [adapted(batch) for batch in stream([8, 3])]
    model = Tied().eval()
    for module in (model.one, model.two):
        module.train()
    trained = [model.one.weight, model.one.bias, model.two.bias]
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    for batch, logits in zip(stream([8, 3]), found, strict=True):
        expected = model(batch)
        torch.testing.assert_close(logits, expected.detach(), atol=1e-5, rtol=1e-4)
        optimizer.zero_grad()
        torch.distributions.Categorical(logits=expected).entropy().mean().backward()
        optimizer.step()
    plain = adapted.freeze()
    assert plain.get_parameter("one.weight") is plain.get_parameter("two.weight")
