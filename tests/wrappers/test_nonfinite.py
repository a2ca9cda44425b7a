"""nonfinite="skip": samples with NaN or Inf are left out, and leave no trace in the others."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from subjects import convolutional, images, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import METHODS, NonFiniteError, ServedModel, adapt, load
from realistic_tta.wrappers.nonfinite import repair

QUICK: dict[str, dict[str, Any]] = {"cotta": {"views": 2}, "adacontrast": {"queue_size": 8}}


def make(method: str, **options: Any) -> ServedModel:
    return adapt(convolutional(), method, **QUICK.get(method, {}), **options)


def skipping(method: str, **options: Any) -> ServedModel:
    return make(method, nonfinite="skip", **options)


def broken(batch: Tensor, places: list[int], value: float = math.nan) -> Tensor:
    """A single pixel of some of the images is replaced."""
    batch = batch.clone()
    batch[places, 1, 2, 3] = value
    return batch


def inner_state(adapted: ServedModel) -> dict[str, Tensor]:
    return snapshot(adapted._innermost)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", METHODS)
def test_the_others_are_predicted_as_if_they_had_come_alone(method: str, value: float) -> None:
    """Bit-identical, and so is the state: before, with and after the bad batch."""
    adapted, alone = skipping(method), make(method)
    good = [0, 2, 3, 5]
    for number, batch in enumerate(stream([6, 6, 6])):
        if number == 1:
            outputs = adapted(broken(batch, [1, 4], value))[good]
            assert torch.equal(outputs, alone(batch[good]))
        else:
            assert torch.equal(adapted(batch), alone(batch))
        assert same(inner_state(adapted), inner_state(alone))
    health = adapted.health()
    assert (health.skipped, health.images, health.batches) == (2, 18, 3)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_of_bad_samples_only_changes_the_counts_alone(method: str) -> None:
    adapted = skipping(method)
    adapted(images(4))
    before = inner_state(adapted)
    batch = broken(images(3, seed=1), [0, 1, 2])
    with torch.no_grad():
        expected = convolutional()(repair(batch))
    torch.testing.assert_close(adapted(batch), expected)
    assert same(before, inner_state(adapted))
    assert adapted.health().skipped == 3


@pytest.mark.parametrize("method", ["source", "rectified_tema", "tent"])
def test_a_bad_sample_is_answered_by_the_source_or_with_nan(method: str) -> None:
    batch = broken(images(4, seed=1), [2])
    with torch.no_grad():
        expected = convolutional()(repair(batch)[2:3])
    torch.testing.assert_close(skipping(method)(batch)[2:3], expected)
    outputs = skipping(method, nonfinite_output="nan")(batch)
    assert outputs[2].isnan().all()
    assert outputs[[0, 1, 3]].isfinite().all()
    everything = skipping(method, nonfinite_output="nan")(broken(batch, [0, 1, 2, 3]))
    assert everything.isnan().all()


def test_a_repaired_sample_has_the_mean_of_its_finite_values() -> None:
    batch = torch.tensor([[1.0, math.nan, 3.0], [math.inf, -math.inf, math.nan], [1e30, 2.0, 4.0]])
    expected = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [3.0, 2.0, 4.0]])
    assert torch.equal(repair(batch), expected)


@pytest.mark.parametrize("scale", [1e20, 1e38])
@pytest.mark.parametrize(
    "method", ["tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema", "realistic", "tent"]
)
def test_a_sample_whose_squares_overflow_is_skipped(method: str, scale: float) -> None:
    adapted, alone = skipping(method), make(method)
    batch = images(5)
    batch[3] *= scale
    good = [0, 1, 2, 4]
    outputs = adapted(batch)
    assert torch.equal(outputs[good], alone(batch[good]))
    assert outputs.isfinite().all()
    assert same(inner_state(adapted), inner_state(alone))
    assert adapted.health().skipped == 1


@given(st.lists(st.sampled_from(["good", "nan", "inf", "huge"]), min_size=1, max_size=9))
def test_any_mixture_of_samples(samples: list[str]) -> None:
    adapted, alone = skipping("tema"), make("tema")
    batch = images(len(samples))
    for image, sample in enumerate(samples):
        value = {"nan": math.nan, "inf": -math.inf, "huge": 1e25, "good": 0.5}[sample]
        batch[image, 0, 0, 0] = value
    good = torch.tensor([sample == "good" for sample in samples])
    outputs = adapted(batch)
    assert outputs.isfinite().all()
    assert adapted.health().skipped == int((~good).sum())
    if good.any():
        assert torch.equal(outputs[good], alone(batch[good]))
    assert same(inner_state(adapted), inner_state(alone))


class Detector(nn.Module):
    """A list of images, each of its own size, in; a list of dicts out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolutional()

    def forward(self, batch: list[Tensor]) -> list[dict[str, Tensor]]:
        return [{"scores": self.inner(image[None])[0]} for image in batch]


@pytest.mark.parametrize("output", ["source", "nan"])
def test_lists_of_images(output: Any) -> None:
    adapted = adapt(Detector(), "tema", nonfinite="skip", nonfinite_output=output)
    alone = adapt(Detector(), "tema")
    batch = [torch.rand(3, 12, 12 + number) for number in range(4)]
    found = adapted([batch[0], batch[1] * math.nan, batch[2], batch[3]])
    expected = alone([batch[0], batch[2], batch[3]])
    assert len(found) == 4
    for one, other in zip([found[0], found[2], found[3]], expected, strict=True):
        assert torch.equal(one["scores"], other["scores"])
    finite = found[1]["scores"].isfinite()
    assert finite.all() if output == "source" else not finite.any()
    assert same(inner_state(adapted), inner_state(alone))


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


def test_every_batched_argument_loses_the_bad_samples_and_every_output_has_them() -> None:
    adapted, alone = adapt(TwoInputs(), "tema", nonfinite="skip"), adapt(TwoInputs(), "tema")
    temperature, shift = torch.tensor(2.0), torch.arange(5.0)
    shift[3] = math.inf
    batch, good = broken(images(5), [1]), [0, 2, 4]
    logits, more = adapted({"image": batch, "shift": shift}, temperature=temperature)
    expected, rest = alone({"image": batch[good], "shift": shift[good]}, temperature=temperature)
    assert torch.equal(logits[good], expected)
    assert torch.equal(more["label"][good], rest["label"])
    assert logits.shape == (5, 5)
    assert torch.equal(more["temperature"], temperature)
    assert adapted.health().skipped == 2


def test_an_overflow_that_no_sample_explains_is_raised() -> None:
    adapted = skipping("tent")
    adapted(images(4))
    adapted._innermost._buffers["weights"] = torch.full_like(
        adapted._innermost._state()["weights"], 3e38
    )
    before = snapshot(adapted)
    with pytest.raises(NonFiniteError):
        adapted(broken(images(4), [0]))
    assert same(before, snapshot(adapted))
    assert adapted.health().skipped == 0


@pytest.mark.parametrize("part", [1, 3])
def test_an_interrupt_in_either_part_changes_nothing(part: int) -> None:
    """One bad sample of four: the source runs on 1, the method on 3."""
    adapted = skipping("tema")
    adapted(images(4))
    before = snapshot(adapted)

    def interrupt(_: nn.Module, args: tuple[Tensor]) -> None:
        if len(args[0]) == part:
            raise KeyboardInterrupt

    hook = adapted._innermost._model.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        adapted(broken(images(4, seed=1), [0]))
    hook.remove()
    assert same(before, snapshot(adapted))


def test_half_precision_samples_are_skipped() -> None:
    model = convolutional().bfloat16()
    adapted, alone = adapt(model, "tema", nonfinite="skip"), adapt(model, "tema")
    batch = images(4).bfloat16()
    assert torch.equal(adapted(broken(batch, [3]))[:3], alone(batch[:3]))
    assert same(inner_state(adapted), inner_state(alone))


def test_only_the_first_skip_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    adapted = skipping("tema")
    with caplog.at_level(logging.INFO, logger="realistic_tta"):
        for _ in range(2):
            adapted(broken(images(3), [0]))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "1 of 3 samples skipped" in caplog.text


def test_the_count_continues_over_a_reset_and_a_restart(tmp_path: Path) -> None:
    adapted = skipping("tema")
    adapted(broken(images(4), [1]))
    adapted.reset()
    assert adapted.health().skipped == 1
    adapted.save(tmp_path / "state")
    again = load(tmp_path / "state", convolutional())
    batch = broken(images(4, seed=2), [0])
    assert torch.equal(again(batch), adapted(batch))
    assert again.health().skipped == 2
