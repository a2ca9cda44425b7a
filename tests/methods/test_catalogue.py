from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import METHODS, SGD, SettingError, adapt


def test_names_are_the_methods_own() -> None:
    assert {name: method.name for name, method in METHODS.items()} == {
        name: name for name in METHODS
    }


def test_without_a_name_it_is_realistic() -> None:
    """Its predictions and its state, too, and not only its name."""
    unnamed, named = adapt(convolutional()), adapt(convolutional(), "realistic")
    assert type(unnamed) is METHODS["realistic"]
    assert unnamed.settings == named.settings
    for batch in stream([4, 1, 16]):
        assert torch.equal(unnamed(batch), named(batch))
    assert same(snapshot(unnamed), snapshot(named))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"momentum": 0.1}, "realistic takes no momentum; tema and rectified_tema do"),
        ({"passes": 1}, 'has no setting "passes"; rectified_tema takes it: adapt(network, "rect'),
        ({"start": "source"}, 'has no setting "start"; tema and rectified_tema take it: adapt(net'),
        ({"steps": 2}, '; tent, eta, sar, cotta and adacontrast take it: adapt(network, "tent", s'),
        ({"warmstart": False}, 'unknown setting "warmstart"; did you mean "warm_start"?'),
    ],
)
def test_what_the_default_does_not_take_is_answered_with_who_does(
    settings: dict[str, Any], words: str
) -> None:
    network = convolutional()
    before = snapshot(network)
    with pytest.raises(SettingError, match=re.escape(words)):
        adapt(network, **settings)
    assert same(before, network.state_dict())


def test_classes_come_from_the_last_linear_layer() -> None:
    assert adapt(convolutional(classes=7)).settings.classes == 7
    assert adapt(convolutional(classes=7), classes=3).settings.classes == 3


def test_no_linear_layer_asks_for_the_classes() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    with pytest.raises(SettingError, match=r"no Linear layer.*classes=10"):
        adapt(network)
    with pytest.raises(SettingError, match=r'"2" has 1 output.*classes=2'):
        adapt(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(9, 1)))
    assert len(adapt(network, classes=4).report().layers) == 1
    assert len(adapt(network, "tema", momentum=0.1).report().layers) == 1
    assert len(adapt(network, "tbn").report().layers) == 1


def test_what_is_not_a_fresh_network_is_refused() -> None:
    with pytest.raises(SettingError, match=r"network is a str; expected a torch.nn.Module"):
        adapt("resnet")  # type: ignore[arg-type]
    adapted = adapt(convolutional())
    with pytest.raises(SettingError, match="adapted already, by realistic"):
        adapt(adapted)
    adapt(adapted.freeze())


class Passes(nn.Module):
    """Takes several inputs and keywords, returns whatever it is told."""

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
    """Dataclass-like, as Hugging Face's model outputs."""

    def __init__(self, logits: Tensor, more: list[Tensor]) -> None:
        self.logits, self.more = logits, more


@pytest.mark.parametrize("form", ["tuple", "dict", "object"])
@pytest.mark.parametrize("method", METHODS)
def test_arguments_and_outputs_pass_through(form: str, method: str) -> None:
    """lame corrects what comes out; its own tests say how. adacontrast predicts after it has
    learnt from what came out: here with steps of no length.
    """
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


def test_the_batch_may_be_a_keyword_a_list_or_a_mapping() -> None:
    class Lists(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = convolutional()

        def forward(self, batch: object) -> Tensor:
            if isinstance(batch, dict):
                batch = batch["image"]
            if isinstance(batch, list):
                batch = torch.stack(batch)
            return self.body(batch)  # type: ignore[no-any-return]

    expected = adapt(convolutional())(images(6))
    batch = images(6)
    assert torch.equal(adapt(Lists())(batch=batch), expected)
    assert torch.equal(adapt(Lists())(list(batch)), expected)
    assert torch.equal(adapt(Lists())({"image": batch}), expected)


def test_dense_outputs_work_with_classes_given() -> None:
    with on_cpu():
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 21, 1)
        )
    adapted = adapt(network, classes=21)
    for size in (4, 1):
        assert adapted(images(size)).shape == (size, 21, 12, 12)


def test_whole_numbers_go_into_networks_that_look_them_up() -> None:
    with on_cpu():
        network = nn.Sequential(
            nn.Embedding(9, 6), nn.Flatten(1), nn.BatchNorm1d(18), nn.Linear(18, 4)
        )
    words = torch.randint(9, (5, 3), generator=torch.Generator().manual_seed(0))
    assert adapt(network)(words).shape == (5, 4)
