"""adapt, load and recalibrate: what they take, what they refuse, what they return."""

from __future__ import annotations

import inspect
import re
from abc import ABCMeta
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot, stream
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

import realistic_tta
from realistic_tta import (
    METHODS,
    SGD,
    Adam,
    AdaptedModel,
    GuardSettings,
    ModelError,
    OptionError,
    RectifiedTema,
    ServedModel,
    Tema,
    Tent,
    adapt,
    load,
    recalibrate,
)
from realistic_tta.api import WRAPPERS
from realistic_tta.core.adapted_model import Wrapper
from realistic_tta.core.settings import Settings
from realistic_tta.errors import StateError


def test_names_are_the_methods_own() -> None:
    assert {name: method.name for name, method in METHODS.items()} == {
        name: name for name in METHODS
    }


@pytest.mark.parametrize("options", [{}, {"passes": 1}, {"momentum": 0.2, "start": "source"}])
def test_a_settings_object_and_a_name_give_the_same_model(options: dict[str, Any]) -> None:
    by_name = adapt(convolutional(), "rectified_tema", **options)
    by_object = adapt(convolutional(), RectifiedTema(**options))
    for batch in stream([4, 1, 16]):
        assert torch.equal(by_name(batch), by_object(batch))
    assert same(snapshot(by_name), snapshot(by_object))


@pytest.mark.parametrize("method", METHODS)
def test_every_settings_class_is_public_and_accepted(method: str) -> None:
    settings_type = METHODS[method].settings_type
    assert getattr(realistic_tta, settings_type.__name__) is settings_type
    assert adapt(convolutional(), settings_type()).report().method == method


def test_the_default_is_realistic_without_wrappers() -> None:
    unnamed, named = adapt(convolutional()), adapt(convolutional(), "realistic")
    for batch in stream([4, 1, 16]):
        assert torch.equal(unnamed(batch), named(batch))
    assert unnamed.report().method == "realistic"
    assert [level.name for level in unnamed._levels()] == ["serving", "realistic"]


def test_wrappers_are_nested_in_one_order_however_they_are_given() -> None:
    adapted = adapt(
        convolutional(), "tema", nonfinite="skip", guard=True, smooth_labels=True, flip=True
    )
    names = [level.name for level in adapted._levels()]
    assert names == ["serving", "nonfinite", "guard", "smooth_labels", "flip", "tema"]


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("tbn", {"classes": 10}, 'tbn has no option "classes"; tema, rectified_tema, eta and ada'),
        ("tbn", {"views": 2}, 'tbn has no option "views"; cotta does'),
        ("realistic", {"momentum": 0.1}, 'has no option "momentum"; tema and rectified_tema do'),
        ("realistic", {"passes": 1}, 'realistic has no option "passes"; rectified_tema does'),
        ("realistic", {"steps": 2}, '"steps"; tent, eta, sar, cotta and adacontrast do'),
        ("source", {"source_batch_size": 4}, "tema, rectified_tema and realistic do"),
        ("tema", {"momentun": 1.0}, 'tema: unknown option "momentun"; did you mean "momentum"'),
        ("temaa", {}, 'unknown method "temaa"; did you mean "tema"'),
        ("tema", {"robust": True}, 'unknown option "robust"'),
        (Tema(), {"momentum": 0.1}, "momentum is given beside Tema(...)"),
        (Tent(), {"preset": "cifar10_c"}, "preset is given beside Tent(...)"),
        (3, {}, "method is 3; expected a name or a settings object"),
        (GuardSettings(), {}, "GuardSettings is not the settings of a known method"),
        ("tema", {"flip": "no"}, "flip is 'no'; expected True or False"),
        ("tema", {"smooth_labels": 1}, "smooth_labels is 1; expected True or False"),
        ("tema", {"guard": 1}, "guard is 1; expected True or False or GuardSettings(...)"),
        ("tema", {"nonfinite": "ignore"}, 'nonfinite is \'ignore\'; expected "raise" or "skip"'),
        ("tema", {"nonfinite_output": 0}, 'nonfinite_output is 0; expected "source" or "nan"'),
        ("tema", {"compile": None}, "compile is None; expected True or False"),
        ("tent", {"compile": True}, "compile=True is not supported with tent"),
        ("tema", {"preset": "cifar10_c"}, "tema has no presets"),
        ("tent", {"preset": "cifar10"}, 'tent: unknown preset "cifar10"; did you mean "cifar10_c"'),
    ],
)
def test_an_option_that_is_not_taken_says_who_takes_it(
    method: Any, options: dict[str, Any], words: str
) -> None:
    model = convolutional()
    before = snapshot(model)
    with pytest.raises(OptionError, match=re.escape(words)):
        adapt(model, method, **options)
    assert same(before, snapshot(model))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_refuses_every_option_of_the_others(method: str) -> None:
    own = METHODS[method].settings_type.names()
    others = {name for each in METHODS.values() for name in each.settings_type.names()}
    for name in others - set(own):
        with pytest.raises(OptionError, match=f'{method} has no option "{name}"'):
            adapt(convolutional(), method, **{name: 1})  # type: ignore[arg-type]


def test_options_beside_a_preset_take_precedence() -> None:
    def settings_of(**options: Any) -> Any:
        return adapt(convolutional(), "cotta", **options)._innermost._settings

    assert settings_of(preset="cifar100_c").threshold == 0.72
    assert settings_of(preset="cifar100_c", threshold=0.5).threshold == 0.5
    assert isinstance(settings_of(preset="imagenet_c").optimizer, SGD)
    assert isinstance(settings_of(preset="imagenet_c", optimizer=Adam(1.0)).optimizer, Adam)


def test_classes_are_asked_for_only_where_they_are_used() -> None:
    with on_cpu():
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
        single = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(9, 1))
    for method in ("tema", "rectified_tema"):
        with pytest.raises(OptionError, match=r"no Linear layer.*classes=10"):
            adapt(model, method)
        with pytest.raises(OptionError, match=r'"2" has 1 output.*classes=2'):
            adapt(single, method)
        assert adapt(model, method, classes=4)(images(2)).shape == (2, 4, 12, 12)
        assert adapt(model, method, momentum=0.1)(images(2)).shape == (2, 4, 12, 12)
    for method in ("realistic", "tbn", "alpha_bn", "adapt_bn", "source"):
        assert adapt(model, method)(images(2)).shape == (2, 4, 12, 12)
        adapt(single, method)


def test_the_number_of_classes_decides_the_momentum() -> None:
    """Eq. 5: 14 images of 7 classes are as diverse as a training batch of 32; of 1,000, not."""
    read, given, other = (
        adapt(convolutional(7), "tema", classes=classes, source_batch_size=32)
        for classes in (None, 7, 1000)
    )
    outputs = [each(images(14)) for each in (read, given, other)]
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_segmentation_models_work_with_the_default() -> None:
    with on_cpu():
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 21, 1)
        )
    adapted = adapt(model, guard=True, nonfinite="skip")
    for size in (4, 1):
        assert adapted(images(size)).shape == (size, 21, 12, 12)
    with torch.no_grad():
        assert not torch.allclose(adapted(images(4)), model.eval()(images(4)), atol=1e-3)


def test_a_model_that_is_adapted_already_is_refused() -> None:
    with pytest.raises(OptionError, match=r"model is a str; expected a torch.nn.Module"):
        adapt("resnet")  # type: ignore[arg-type]
    adapted = adapt(convolutional())
    with pytest.raises(OptionError, match="the model is adapted already, by realistic"):
        adapt(adapted)
    with pytest.raises(OptionError, match='its module "0" is adapted already, by realistic'):
        adapt(nn.Sequential(adapted, nn.ReLU()))
    adapt(adapted.freeze())


def test_a_model_without_shapes_or_copies_is_refused() -> None:
    with pytest.raises(ModelError, match=r'layer "0" \(LazyConv2d\) has no shape yet'):
        adapt(nn.Sequential(nn.LazyConv2d(3, 1), nn.BatchNorm2d(3)))
    stuck: Any = convolutional()
    stuck.frames = (number for number in [1])
    with pytest.raises(ModelError, match="cannot be copied"):
        adapt(stuck)


def test_wrappers_of_torch_are_taken_off() -> None:
    expected = adapt(convolutional(), "tema")(images(3))
    compiled: Any = torch.compile(convolutional(), backend="eager")
    for model in (nn.DataParallel(convolutional()), compiled):
        assert torch.equal(adapt(model, "tema")(images(3)), expected)


class Named(nn.Module):
    """A model with attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = convolutional(), nn.Identity()
        self.labels = ["cat", "dog"]

    def forward(self, batch: Tensor) -> Tensor:
        outputs: Tensor = self.fc(self.body(batch))
        return outputs

    def describe(self) -> str:
        return f"{len(self.labels)} labels"


@pytest.mark.parametrize("options", [{}, {"guard": True, "flip": True, "nonfinite": "skip"}])
def test_other_attributes_are_those_of_the_model(options: dict[str, Any]) -> None:
    adapted = adapt(Named(), "tema", **options)
    assert isinstance(adapted.fc, nn.Identity)
    assert adapted.labels == ["cat", "dog"]
    assert adapted.describe() == "2 labels"
    assert not hasattr(adapted, "missing")
    with pytest.raises(AttributeError, match="missing"):
        adapted.missing  # noqa: B018 - reading it is the test
    with pytest.raises(AttributeError, match="_missing"):
        adapted._missing  # noqa: B018 - reading it is the test


# The interface of an adapted model, beside that of nn.Module.
DOCUMENTED = {"reset", "save", "autosave", "freeze", "report", "health", "register_health_hook"}
# Declared by the classes of methods and wrappers.
DECLARED = {"name", "settings_type", "compiles", "takes_process_group"}


@pytest.mark.parametrize("method", METHODS)
def test_everything_else_is_private(method: str) -> None:
    adapted = adapt(convolutional(), method, guard=True, flip=True, smooth_labels=True)
    modules = set(dir(nn.Module()))
    for level in adapted._levels():
        public = {name for name in (*vars(level), *dir(type(level))) if not name.startswith("_")}
        assert public - modules - {"training"} <= DOCUMENTED | DECLARED
    assert set(dir(ServedModel)) >= DOCUMENTED


def test_a_hook_returns_a_handle_that_removes_it(tmp_path: Path) -> None:
    adapted, told = adapt(convolutional(), "tema"), list[int]()
    handle = adapted.register_health_hook(lambda health: told.append(health.batches))
    saving = adapted.autosave(tmp_path / "state", every_batches=1)
    assert isinstance(handle, RemovableHandle)
    assert isinstance(saving, RemovableHandle)
    adapted(images(2))
    handle.remove()
    saving.remove()
    saving.remove()  # again does no harm
    content = (tmp_path / "state").read_bytes()
    adapted(images(2))
    assert told == [1]
    assert (tmp_path / "state").read_bytes() == content


def test_a_method_is_at_most_two_levels_below_a_torch_module() -> None:
    for method in METHODS.values():
        line = [each for each in method.__mro__ if issubclass(each, nn.Module)]
        assert line.index(nn.Module) <= 2, method
        assert AdaptedModel in line


def test_a_wrapper_is_an_adapted_model_one_level_below_wrapper() -> None:
    wrappers: list[type] = [*WRAPPERS.values(), ServedModel]
    for wrapper in wrappers:
        assert wrapper.__bases__ == (Wrapper,)


def test_no_class_is_made_by_magic() -> None:
    """No metaclass of ours, and nothing that runs when a class is declared."""
    classes: list[type] = [*METHODS.values(), *WRAPPERS.values(), ServedModel, AdaptedModel]
    for each in [*classes, Settings]:
        assert type(each) in (ABCMeta, type)
        for base in each.__mro__:
            if base.__module__.startswith("realistic_tta"):
                assert "__init_subclass__" not in vars(base)
                assert "__class_getitem__" not in vars(base)


class Passes(nn.Module):
    """Takes several inputs and keywords, and returns the form it was asked for."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.body, self.form = convolutional(), form

    def forward(self, batch: Tensor, shift: Tensor, *, scale: float = 1.0) -> object:
        logits = self.body(batch) * scale + shift
        return {
            "tuple": (logits, batch.shape),
            "dict": {"logits": logits, "note": "text"},
            "object": Output(logits, [logits * 2]),
        }[self.form]


class Output:
    """As the model outputs of Hugging Face."""

    def __init__(self, logits: Tensor, more: list[Tensor]) -> None:
        self.logits, self.more = logits, more


@pytest.mark.parametrize("form", ["tuple", "dict", "object"])
@pytest.mark.parametrize("method", METHODS)
def test_arguments_and_outputs_pass_through(form: str, method: str) -> None:
    """lame corrects its outputs; adacontrast predicts after a step, here one of no length."""
    if method == "lame":
        return
    still: dict[str, Any] = {"optimizer": SGD(lr=0.0)} if method == "adacontrast" else {}
    batch, shift = images(6), torch.full((6, 5), 3.0)
    logits = adapt(convolutional(), method, **still)(batch)
    found = adapt(Passes(form), method, **still)(batch, shift=shift, scale=2.0)
    expected = logits * 2 + 3
    if form == "tuple":
        torch.testing.assert_close(found[0], expected)
        assert found[1] == batch.shape
    elif form == "dict":
        torch.testing.assert_close(found["logits"], expected)
        assert found["note"] == "text"
    else:
        torch.testing.assert_close(found.more[0], expected * 2)


class Flexible(nn.Module):
    """Takes a tensor, a list of images or a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()

    def forward(self, batch: object) -> Tensor:
        if isinstance(batch, dict):
            batch = batch["image"]
        if isinstance(batch, list):
            batch = torch.stack(batch)
        return self.body(batch)  # type: ignore[no-any-return]


def test_the_batch_may_be_a_keyword_a_list_or_a_mapping() -> None:
    batch = images(6)
    expected = adapt(convolutional())(batch)
    assert torch.equal(adapt(Flexible())(batch=batch), expected)
    assert torch.equal(adapt(Flexible())(list(batch)), expected)
    assert torch.equal(adapt(Flexible())({"image": batch}), expected)


def test_integers_go_into_models_with_embeddings() -> None:
    with on_cpu():
        model = nn.Sequential(
            nn.Embedding(9, 6), nn.Flatten(1), nn.BatchNorm1d(18), nn.Linear(18, 4)
        )
    words = torch.randint(9, (5, 3), generator=torch.Generator().manual_seed(0))
    assert adapt(model)(words).shape == (5, 4)


@pytest.mark.parametrize("method", ["realistic", Tema(momentum=0.2), "tent"])
def test_recalibrate_is_adapt_and_freeze(method: Any) -> None:
    model, batches = convolutional(), stream([4, 8, 2])
    before = snapshot(model)
    plain = recalibrate(model, iter(batches), method)
    adapted = adapt(model, method)
    for batch in batches:
        adapted(batch)
    assert same(snapshot(plain), snapshot(adapted.freeze()))
    assert same(before, snapshot(model))
    assert type(plain) is type(model)
    with pytest.raises(OptionError, match="unknown option"):
        recalibrate(model, batches, "tema", speed=1)


def test_a_file_brings_its_method_options_and_wrappers(tmp_path: Path) -> None:
    settings = GuardSettings(window=9)
    adapted = adapt(
        convolutional(),
        Tent(SGD(lr=0.1), steps=2),
        guard=settings,
        flip=True,
        nonfinite="skip",
        nonfinite_output="nan",
    )
    adapted(images(3))
    adapted.save(tmp_path / "state")
    again = load(tmp_path / "state", convolutional())
    for level, other in zip(adapted._levels(), again._levels(), strict=True):
        assert type(level) is type(other)
        assert level._settings == other._settings


def test_load_refuses_what_adapt_refuses(tmp_path: Path) -> None:
    adapted = adapt(convolutional(), "tent")
    adapted.save(tmp_path / "state")
    with pytest.raises(OptionError, match="adapted already"):
        load(tmp_path / "state", adapted)
    with pytest.raises(OptionError, match="model is a str"):
        load(tmp_path / "state", "resnet")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="compile=True is not supported with tent"):
        load(tmp_path / "state", convolutional(), compile=True)
    with pytest.raises(StateError, match="another model"):
        load(tmp_path / "state", convolutional(classes=6))


def test_adapt_lists_every_wrapper_option_in_its_signature() -> None:
    """An editor completes them, and the docstring explains them."""
    from realistic_tta.api import WrapperOptions

    parameters = inspect.signature(adapt).parameters
    documented = inspect.getdoc(adapt) or ""
    for name in WrapperOptions.names():
        assert name in parameters
        assert f"{name}: " in documented


def test_a_state_of_the_same_layers_with_other_weights_brings_them() -> None:
    """Weights and source statistics of the model are part of the state_dict, as in torch."""
    other = convolutional()
    with torch.no_grad():
        for tensor in other.state_dict().values():
            if tensor.is_floating_point():
                tensor.mul_(1.1)
    for method in ("realistic", "rectified_tema", "tent"):
        first, second = adapt(other, method), adapt(convolutional(), method)
        first(images(4))
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(images(3)), second(images(3)))
        first.reset()
        second.reset()
        assert torch.equal(first(images(3)), second(images(3)))
