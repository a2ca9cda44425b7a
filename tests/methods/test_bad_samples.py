"""Samples with NaN or Inf are left out, and nothing else knows that they came."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot, stream
from torch import Tensor, nn

import realistic_tta
from realistic_tta import METHODS, SettingError, adapt
from realistic_tta.errors import NonFiniteError
from realistic_tta.methods.bad_samples import repair

QUICK: dict[str, dict[str, Any]] = {"cotta": {"views": 2}, "adacontrast": {"queue_size": 8}}


def make(
    method: str, network: nn.Module | None = None, **options: Any
) -> realistic_tta.AdaptedModel:
    return adapt(network or convolutional(), method, **QUICK.get(method, {}), **options)


def broken(batch: Tensor, places: list[int], value: float = math.nan) -> Tensor:
    """A single pixel of some of the images is no number."""
    batch = batch.clone()
    batch[places, 1, 2, 3] = value
    return batch


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", METHODS)
def test_the_others_are_predicted_as_if_they_had_come_alone(method: str, value: float) -> None:
    """To the bit, and so is everything learnt; before, in and after the faulty batch."""
    adapted, alone = make(method), make(method)
    good = [0, 2, 3, 5]
    for number, batch in enumerate(stream([6, 6, 6])):
        if number == 1:
            outputs = adapted(broken(batch, [1, 4], value))[good]
            assert torch.equal(outputs, alone(batch[good]))
        else:
            assert torch.equal(adapted(batch), alone(batch))
        assert same(snapshot(adapted), snapshot(alone))
    health = adapted.health()
    assert (health.excluded, health.images, health.batches, health.recent) == (2, 18, 3, 16)
    assert health.entropy is not None
    assert math.isfinite(health.entropy)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_of_faulty_samples_changes_nothing(method: str) -> None:
    adapted, network = make(method), convolutional()
    adapted(images(4))
    before = snapshot(adapted)
    batch = broken(images(3, seed=1), [0, 1, 2])
    with torch.no_grad():
        expected = network(repair(batch))
    torch.testing.assert_close(adapted(batch), expected)
    assert same(before, snapshot(adapted))
    assert adapted.health().excluded == 3


@pytest.mark.parametrize("method", ["source", "rectified_tema", "tent"])
def test_a_faulty_sample_is_answered_by_the_source_or_with_nan(method: str) -> None:
    batch = broken(images(4, seed=1), [2])
    with torch.no_grad():
        expected = convolutional()(repair(batch)[2:3])
    torch.testing.assert_close(make(method)(batch)[2:3], expected)
    outputs = make(method, bad_output="nan")(batch)
    assert outputs[2].isnan().all()
    assert outputs[[0, 1, 3]].isfinite().all()


def test_a_repaired_sample_has_the_mean_of_its_finite_values() -> None:
    batch = torch.tensor([[1.0, math.nan, 3.0], [math.inf, -math.inf, math.nan]], device="cpu")
    expected = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], device="cpu")
    assert torch.equal(repair(batch), expected)


@pytest.mark.parametrize("scale", [1e20, 1e38])
@pytest.mark.parametrize(
    "method", ["tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema", "realistic", "tent"]
)
def test_a_sample_that_overflows_in_the_network_is_left_out(method: str, scale: float) -> None:
    """Its pixels are finite; their squares, or the activations, are not."""
    adapted, alone = make(method), make(method)
    batch = images(5)
    batch[3] *= scale
    good = [0, 1, 2, 4]
    assert torch.equal(adapted(batch)[good], alone(batch[good]))
    assert same(snapshot(adapted), snapshot(alone))
    assert adapted.health().excluded == 1


@pytest.mark.parametrize("method", ["tema", "tent"])
def test_samples_with_nan_and_samples_that_overflow_are_left_out_together(method: str) -> None:
    adapted, alone = make(method), make(method)
    batch = broken(images(5), [0])
    batch[3] *= 1e20
    good = [1, 2, 4]
    assert torch.equal(adapted(batch)[good], alone(batch[good]))
    assert same(snapshot(adapted), snapshot(alone))
    assert adapted.health().excluded == 2
    assert adapted.kept is not None
    assert adapted.kept.tolist() == [False, True, True, False, True]


def test_an_overflow_that_no_sample_explains_is_raised() -> None:
    """Weights, not images, are at fault."""
    adapted = adapt(convolutional(), "tent", optimizer=realistic_tta.SGD(lr=1e38))
    adapted.get_buffer("weights").fill_(3e38)
    before = snapshot(adapted)
    with pytest.raises(NonFiniteError):
        adapted(images(4))
    assert same(before, snapshot(adapted))
    assert adapted.health().excluded == 0


class Fails(nn.Module):
    """As the network, until it is told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.fail_at = convolutional(), -1

    def forward(self, batch: Tensor) -> Tensor:
        if len(batch) == self.fail_at:
            raise KeyboardInterrupt
        logits: Tensor = self.inner(batch)
        return logits


@pytest.mark.parametrize("part", [1, 3])
def test_an_interrupt_in_either_part_changes_nothing(part: int) -> None:
    """One faulty sample of four: the source runs on 1, the method on 3."""
    adapted = adapt(Fails(), "tema")
    adapted(images(4))
    before = snapshot(adapted)
    adapted.network.fail_at = part  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        adapted(broken(images(4, seed=1), [0]))
    assert same(before, snapshot(adapted))
    assert adapted.health().excluded == 0


class Detector(nn.Module):
    """A list of images, each of its own size, in; a list of dicts out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolutional()

    def forward(self, batch: list[Tensor]) -> list[dict[str, Tensor]]:
        return [{"scores": self.inner(image[None])[0]} for image in batch]


def test_lists_of_images_are_sorted_too() -> None:
    adapted, alone = adapt(Detector(), "tema"), adapt(Detector(), "tema")
    batch = [torch.rand(3, 12, 12 + number, device="cpu") for number in range(4)]
    faulty = [batch[0], batch[1] * math.nan, batch[2], batch[3]]
    found = adapted(faulty)
    expected = alone([batch[0], batch[2], batch[3]])
    assert len(found) == 4
    for one, other in zip([found[0], found[2], found[3]], expected, strict=True):
        assert torch.equal(one["scores"], other["scores"])
    assert found[1]["scores"].isfinite().all()
    assert same(snapshot(adapted), snapshot(alone))


class TwoInputs(nn.Module):
    """Images and a number for each, by name, and a temperature for all; a tuple comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolutional()

    def forward(
        self, inputs: dict[str, Tensor], *, temperature: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        logits = self.inner(inputs["image"]) + inputs["shift"][:, None]
        return logits / temperature, {"label": logits.argmax(dim=1), "temperature": temperature}


def test_every_batched_argument_loses_the_faulty_sample_and_every_output_has_it() -> None:
    adapted, alone = adapt(TwoInputs(), "tema"), adapt(TwoInputs(), "tema")
    temperature, shift = torch.tensor(2.0, device="cpu"), torch.arange(5.0, device="cpu")
    shift[3] = math.inf
    batch, good = broken(images(5), [1]), [0, 2, 4]
    logits, more = adapted({"image": batch, "shift": shift}, temperature=temperature)
    expected, rest = alone({"image": batch[good], "shift": shift[good]}, temperature=temperature)
    assert torch.equal(logits[good], expected)
    assert torch.equal(more["label"][good], rest["label"])
    assert logits.shape == (5, 5)
    assert torch.equal(more["temperature"], temperature)
    assert adapted.health().excluded == 2


def test_compiled_networks_leave_samples_out_too() -> None:
    torch._dynamo.reset()
    adapted, alone = (adapt(convolutional(), "tema", compile=True) for _ in range(2))
    for each in (adapted, alone):
        assert each.compiled is not None
        each.compiled.backend = "aot_eager"
    for batch in stream([4, 4, 4]):
        adapted(batch)
        alone(batch)
    batch, good = images(4, seed=9), [0, 2, 3]
    assert torch.equal(adapted(broken(batch, [1]))[good], alone(batch[good]))
    assert same(snapshot(adapted), snapshot(alone))


def test_half_precision_samples_are_left_out() -> None:
    with on_cpu():
        network = convolutional().bfloat16()
    adapted, alone = adapt(network, "tema"), adapt(network, "tema")
    batch = images(4).bfloat16()
    assert torch.equal(adapted(broken(batch, [3]))[:3], alone(batch[:3]))
    assert same(snapshot(adapted), snapshot(alone))


def test_the_first_exclusion_is_a_warning_and_the_next_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapted = make("tema")
    with caplog.at_level(logging.INFO, logger="realistic_tta"):
        for _ in range(2):
            adapted(broken(images(3), [0]))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "1 of 3 samples left out" in caplog.text


@pytest.mark.parametrize("option", ["on_bad_input", "bad_output"])
def test_unknown_answers_are_refused(option: str) -> None:
    with pytest.raises(SettingError, match=f"{option} is 'ignore'; expected"):
        make("tema", None, **{option: "ignore"})


def test_a_loaded_network_leaves_samples_out(tmp_path: Any) -> None:
    adapted = make("tema")
    adapted(broken(images(4), [1]))
    adapted.save(tmp_path / "state")
    again = realistic_tta.load(tmp_path / "state", convolutional())
    batch = broken(images(4, seed=2), [0])
    assert torch.equal(again(batch), adapted(batch))
    assert again.health().excluded == 2
    raising = realistic_tta.load(tmp_path / "state", convolutional(), on_bad_input="raise")
    with pytest.raises(NonFiniteError):
        raising(batch)
