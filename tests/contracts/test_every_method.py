"""The promises of every method and every wrapper. A new method joins by being registered."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts.variants import (
    METHOD_VARIANTS,
    VARIANTS,
    equal,
    make,
    method_only,
    predictions,
    trains,
    without_counters,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import CPU, convolutional, images, on_cpu, randomize, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import METHODS, InputError, ModelError, ServedModel, StateError, adapt, load

UNTOUCHED = {"source", "lame"}  # methods that leave the model as trained
SIZES = [5, 16, 1, 64, 3, 1, 1]


def guarded(name: str) -> bool:
    return "guard" in VARIANTS[name]


def test_any_batch_size_gives_one_finite_prediction_per_image(variant: str) -> None:
    adapted = make(variant)
    for batch, size in zip(stream(SIZES), SIZES, strict=True):
        logits = adapted(batch)
        assert logits.shape == (size, 5)
        assert torch.isfinite(logits).all()
        assert not logits.requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_the_model_passed_in_stays_as_it_was(variant: str, training: bool) -> None:
    model = convolutional().train(training)
    modes = [module.training for module in model.modules()]
    types = [type(module) for module in model.modules()]
    needed = [parameter.requires_grad for parameter in model.parameters()]
    before = snapshot(model)
    adapted = make(variant, model)
    predictions(adapted, stream(SIZES[:4]))
    adapted.reset()
    adapted.freeze()
    assert same(before, snapshot(model))
    assert [module.training for module in model.modules()] == modes
    assert [type(module) for module in model.modules()] == types
    assert [parameter.requires_grad for parameter in model.parameters()] == needed
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_same_stream_gives_the_same_predictions(variant: str) -> None:
    """Whatever ran before: the global generator and other adapted models do not matter."""
    first = predictions(make(variant), stream(SIZES))
    torch.manual_seed(7)
    torch.rand(1000)
    for other in ("cotta", "adacontrast", "tent in three"):
        predictions(make(other), stream([4, 4]))
    assert equal(first, predictions(make(variant), stream(SIZES)))


def test_reset_restores_every_buffer(variant: str) -> None:
    """After reset the next batch is predicted as if it were the first; counters continue."""
    adapted = make(variant)
    fresh = snapshot(adapted)
    first = predictions(adapted, stream(SIZES))
    assert not same(without_counters(fresh), without_counters(snapshot(adapted)))
    adapted.reset()
    assert same(without_counters(fresh), without_counters(snapshot(adapted)))
    assert equal(first, predictions(adapted, stream(SIZES)))
    health = adapted.health()
    assert (health.batches, health.images, health.resets) == (14, 2 * sum(SIZES), 1)


def test_a_state_dict_continues_bit_identical(variant: str) -> None:
    adapted = make(variant)
    batches = stream(SIZES)
    predictions(adapted, batches[:3])
    state = snapshot(adapted)
    rest = predictions(adapted, batches[3:])
    other = make(variant)
    predictions(other, stream([2, 9]))
    other.load_state_dict(state)
    assert equal(rest, predictions(other, batches[3:]))
    assert same(snapshot(adapted), snapshot(other))
    assert other.health() == adapted.health()
    assert other.health().batches == len(SIZES)


def test_a_state_dict_that_is_held_does_not_change_with_the_model(variant: str) -> None:
    """State is replaced, never changed in place."""
    adapted = make(variant)
    predictions(adapted, stream([4, 2]))
    held, copied = adapted.state_dict(), snapshot(adapted)
    predictions(adapted, stream([3, 5]))
    adapted.reset()
    assert same(dict(held), copied)


def test_a_file_continues_bit_identical(variant: str, tmp_path: Path) -> None:
    adapted, batches = make(variant), stream([5, 16, 1, 7, 3])
    predictions(adapted, batches[:3])
    before = snapshot(adapted)
    adapted.save(tmp_path / "state")
    assert same(before, snapshot(adapted))
    compiled = "compile" in VARIANTS[variant]
    again = load(tmp_path / "state", convolutional(), compile=compiled)
    assert again.health() == adapted.health()
    assert equal(predictions(again, batches[3:]), predictions(adapted, batches[3:]))
    assert same(snapshot(adapted), snapshot(again))


ELSEWHERE = """
import sys, torch, realistic_tta
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import subjects
torch.set_num_threads(1)
folder = Path(sys.argv[1])
logits = {}
for path in folder.glob("*.state"):
    adapted = realistic_tta.load(path, subjects.convolutional())
    logits[path.stem] = adapted(subjects.images(2, seed=2))
torch.save(logits, folder / "logits.pt")
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tensor, Tensor]]:
    """The prediction of each variant after two batches, here and in one new process for all."""
    folder, here = tmp_path_factory.mktemp("elsewhere"), {}
    for number, name in enumerate(VARIANTS):
        adapted = make(name)
        predictions(adapted, stream([4, 3]))
        adapted.save(folder / f"{number}.state")
        here[name] = adapted(images(2, seed=2))
    tests = Path(__file__).parents[1]
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", ELSEWHERE, str(folder), str(tests)], check=True
    )
    there = torch.load(folder / "logits.pt")
    return {name: (logits, there[str(place)]) for place, (name, logits) in enumerate(here.items())}


@pytest.mark.xdist_group("elsewhere")
def test_a_file_continues_in_a_new_process(
    variant: str, elsewhere: dict[str, tuple[Tensor, Tensor]]
) -> None:
    here, there = elsewhere[variant]
    assert torch.equal(here, there)


def test_copies_continue_as_the_original(variant: str) -> None:
    adapted = make(variant)
    batches = stream([4, 3, 2])
    predictions(adapted, batches[:2])
    file = io.BytesIO()
    torch.save(adapted, file)
    file.seek(0)
    others = [
        copy.deepcopy(adapted),
        pickle.loads(pickle.dumps(adapted)),  # noqa: S301 - our own bytes
        torch.load(file, weights_only=False),
    ]
    before = snapshot(adapted)
    expected = copy.deepcopy(adapted)(batches[2])
    for other in others:
        assert torch.equal(other(batches[2]), expected)
        assert same(before, snapshot(adapted))
    assert torch.equal(adapted(batches[2]), expected)
    assert all(same(snapshot(adapted), snapshot(other)) for other in others)


class Fragile(nn.Module):
    """Fails behind its BatchNorm layers, on demand, with an error of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()
        self.error: BaseException | None = None
        self.calls = 0
        self.fails_at = 0

    def forward(self, batch: Tensor) -> Tensor:
        outputs: Tensor = self.body(batch)
        self.calls += 1
        if self.error is not None and self.calls > self.fails_at:
            raise self.error
        return outputs


def fragile_in(adapted: nn.Module) -> Fragile:
    return next(module for module in adapted.modules() if isinstance(module, Fragile))


def passes_of(adapted: ServedModel, batch: Tensor) -> int:
    """How often the model would run for a batch."""
    other = copy.deepcopy(adapted)
    fragile_in(other).calls = 0
    other(batch)
    return fragile_in(other).calls


def is_free(adapted: ServedModel) -> bool:
    """Whether another thread can use the model."""
    thread = threading.Thread(target=adapted.report, daemon=True)
    thread.start()
    thread.join(20)
    return not thread.is_alive()


@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), KeyError("boom"), KeyboardInterrupt()], ids=repr
)
def test_a_forward_that_raises_changes_nothing(variant: str, error: BaseException) -> None:
    """Whichever pass it is that fails: the first, the second or the last."""
    adapted, batch = make(variant, Fragile()), images(8, seed=5)
    predictions(adapted, stream([4, 2]))
    before, health, fragile = snapshot(adapted), adapted.health(), fragile_in(adapted)
    expected = copy.deepcopy(adapted)(batch)
    for whole_passes in {0, 1, passes_of(adapted, batch) - 1}:
        if whole_passes >= passes_of(adapted, batch):
            continue
        fragile.error, fragile.calls, fragile.fails_at = error, 0, whole_passes
        with pytest.raises(type(error)):
            adapted(batch)
        assert same(before, snapshot(adapted))
        assert adapted.health() == health
        assert is_free(adapted)
        fragile.error = None
    assert torch.equal(adapted(batch), expected)


def test_between_calls_the_model_inside_is_the_source(variant: str) -> None:
    """No rule and no weight outlives its pass, whether the pass succeeds or fails."""
    model, batch = convolutional(), images(4)
    adapted = make(variant, model)
    inside = adapted._innermost._model
    with torch.no_grad():
        expected = model(batch)
        predictions(adapted, stream([4, 1]))
        assert torch.equal(inside(batch), expected)
        with pytest.raises((RuntimeError, ValueError)):
            adapted(torch.rand(2, 4, 12, 12))
        assert torch.equal(inside(batch), expected)


BAD: dict[str, tuple[Tensor, str]] = {
    "empty": (torch.empty(0, 3, 12, 12), "is empty"),
    "integers": (torch.zeros(2, 3, 12, 12, dtype=torch.uint8), "float"),
    "NaN": (
        images(3).index_fill(0, torch.tensor([1]), float("nan")),
        r"NaN or Inf in 1 of 3 .*\[1\]",
    ),
    "Inf": (images(3).index_fill(0, torch.tensor([0, 2]), float("inf")), r"\[0, 2\]"),
    "a number": (torch.tensor(1.0), "single number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_and_changes_nothing(variant: str, case: str) -> None:
    if case in ("NaN", "Inf") and "nonfinite" in VARIANTS[variant]:
        return  # skipped, not raised: tests/wrappers/test_nonfinite.py
    batch, words = BAD[case]
    adapted = make(variant)
    predictions(adapted, stream([4, 2]))
    before = snapshot(adapted)
    with pytest.raises(InputError, match=words):
        adapted(batch)
    assert same(before, snapshot(adapted))


@pytest.mark.parametrize("shape", [(2, 4, 12, 12), (12,), (2, 3, 12), (3, 12, 12)], ids=str)
def test_a_wrong_shape_names_the_layer_and_changes_nothing(
    variant: str, shape: tuple[int, ...]
) -> None:
    adapted = make(variant)
    adapted(images(4))
    before = snapshot(adapted)
    with pytest.raises((RuntimeError, ValueError), match=r'layer "|needs? images'):
        adapted(torch.rand(shape))
    assert same(before, snapshot(adapted))


def test_a_state_of_another_model_is_refused_whole(variant: str) -> None:
    adapted = make(variant)
    adapted(images(4))
    before = snapshot(adapted)
    wrong = snapshot(make(variant, convolutional(classes=6)))
    for key in wrong:
        if wrong[key].is_floating_point():
            wrong[key] += 1
    for state in (wrong, {**before, "surplus": torch.zeros(1)}):
        with pytest.raises(StateError, match="Nothing was loaded"):
            adapted.load_state_dict(state)
        assert same(before, snapshot(adapted))


def test_a_state_that_lacks_a_tensor_is_refused_whole(variant: str) -> None:
    adapted = make(variant)
    adapted(images(4))
    before = snapshot(adapted)
    fresh = snapshot(make(variant))
    for missing in fresh:
        state = {key: value for key, value in fresh.items() if key != missing}
        with pytest.raises(StateError, match="is missing"):
            adapted.load_state_dict(state)
        assert same(before, snapshot(adapted))


def test_frozen_is_the_plain_original_with_the_statistics_in_use(variant: str) -> None:
    """A wrapper is not part of it: it is the frozen method inside."""
    model = convolutional().train()
    adapted, method = make(variant, model), adapt(model, **method_only(variant))
    batches, batch = stream([16, 16]), images(16, seed=9)
    for each in (adapted, method):
        predictions(each, batches)
    adapted(batch)
    logits = method(batch)
    plain = adapted.freeze()
    assert [type(module) for module in plain.modules()] == [type(m) for m in model.modules()]
    assert not any(module.training for module in plain.modules())
    convolutional().load_state_dict(plain.state_dict())
    with torch.no_grad():
        again = plain(batch)
        source = convolutional()(batch)
    if variant == "cotta" or guarded(variant):
        assert torch.isfinite(again).all()  # the mean over views, or a rollback, came between
    elif variant == "rectified_tema, one pass" or trains(variant):
        # It predicted with the prior, or the weights, from before this batch.
        assert (again - logits).abs().max() < 0.1
    elif VARIANTS[variant]["method"] == "lame":
        assert torch.equal(again, source)  # it corrects the batch, not the model
    else:
        torch.testing.assert_close(again, logits, atol=1e-5, rtol=1e-4)
    if VARIANTS[variant]["method"] not in UNTOUCHED and not guarded(variant):
        assert not torch.allclose(again, source, atol=1e-3)
    assert same(snapshot(plain), snapshot(adapted.freeze()))
    if not guarded(variant):  # a rollback is a state of its own
        assert same(snapshot(plain), snapshot(method.freeze()))


def test_frozen_before_the_first_batch_is_the_source(variant: str) -> None:
    model = convolutional()
    assert same(snapshot(make(variant, model).freeze()), snapshot(model))
    adapted = make(variant, model)
    adapted(images(4))
    adapted.reset()
    assert same(snapshot(adapted.freeze()), snapshot(model))


def test_freeze_report_and_health_change_nothing(variant: str) -> None:
    adapted = make(variant)
    adapted(images(4))
    before = snapshot(adapted)
    adapted.freeze()(images(2))
    str(adapted.report())
    adapted.health()
    assert same(before, snapshot(adapted))


def test_train_has_no_effect(variant: str) -> None:
    """Dropout stays off."""
    batch = images(8)
    assert torch.equal(make(variant).train()(batch), make(variant)(batch))


def test_outputs_may_be_changed_in_place(variant: str) -> None:
    adapted, other = make(variant), make(variant)
    for batch in stream([4, 600, 3, 1]):
        expected = other(batch)
        logits = adapted(batch)
        assert torch.equal(logits, expected)
        logits.fill_(1e9)
        assert same(snapshot(adapted), snapshot(other))
        assert adapted.health() == other.health()


def test_the_batch_may_be_changed_in_place_after_the_call(variant: str) -> None:
    """A camera that writes every image into the same memory."""
    adapted, other, memory = make(variant), make(variant), torch.empty(4, 3, 12, 12)
    for batch in stream([4, 4, 4]):
        memory.copy_(batch)
        assert torch.equal(adapted(memory), other(batch))
        assert torch.equal(memory, batch)
        memory.fill_(1e9)
    assert same(snapshot(adapted), snapshot(other))


def test_inference_mode_can_come_and_go(variant: str) -> None:
    adapted, reference = make(variant), make(variant)
    batches = stream([4, 2, 1, 3])
    expected = predictions(reference, batches)
    for number, batch in enumerate(batches):
        with torch.inference_mode(number % 2 == 0):
            assert torch.equal(adapted(batch), expected[number])
    assert not any(tensor.is_inference() for tensor in adapted.state_dict().values())
    with torch.inference_mode():
        adapted.reset()
        adapted.load_state_dict(snapshot(reference))
    assert torch.equal(adapted(batches[0]), reference(batches[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_device_and_dtype_follow_the_model(variant: str, dtype: torch.dtype) -> None:
    """State is kept in float32 or better, before and after a conversion.

    Of lame the probabilities are compared: near 0, logarithms magnify rounding. Rounding may also
    change a guard's decision, so only the form of its outputs is compared.
    """
    single = make(variant)
    converted = make(variant, convolutional().to(dtype))
    later = make(variant).to(dtype)
    for batch in stream([8, 4, 2]):
        wanted = single(batch)
        for adapted in (converted, later):
            logits = adapted(batch.to(dtype))
            assert logits.dtype == dtype
            assert torch.isfinite(logits).all()
            tolerance = {torch.float16: 0.02, torch.bfloat16: 0.15}.get(dtype, 1e-5)
            found, expected = logits.float(), wanted
            if variant == "lame":
                found, expected, tolerance = found.softmax(1), wanted.softmax(1), 4 * tolerance
            if not guarded(variant):
                torch.testing.assert_close(found, expected, atol=tolerance, rtol=0.0)
    for adapted in (converted, later):
        for level in list(adapted._levels())[1:]:  # serving keeps outputs as they were
            kept = [each for each in level._state().values() if each.is_floating_point()]
            assert all(buffer.dtype.itemsize >= 4 for buffer in kept)


def test_channels_last_gives_the_same(variant: str) -> None:
    model: Any = convolutional()
    usual = make(variant)
    last = make(variant, model.to(memory_format=torch.channels_last))
    for batch in stream([8, 4, 1]):
        logits = last(batch.contiguous(memory_format=torch.channels_last))
        torch.testing.assert_close(logits, usual(batch), atol=1e-5, rtol=1e-4)


def test_nothing_relies_on_the_default_device(variant: str) -> None:
    """A CPU stands for a GPU while the default device is elsewhere."""
    expected = predictions(make(variant), stream([8, 1, 3]))
    model, batches = convolutional(), stream([8, 1, 3])
    with torch.device("meta"):
        adapted = make(variant, model)
        found = predictions(adapted, batches)
        str(adapted.report())
        adapted.health()
        adapted.freeze()
        adapted.load_state_dict(adapted.state_dict())
        adapted.reset()
        again = predictions(adapted, batches)
    assert equal(found, expected)
    assert equal(again, expected)


def test_the_host_waits_for_the_device_only_to_check(variant: str) -> None:
    """A whole prediction runs on tensors of the meta device, which have no values to wait for.

    Not so where values decide the next step: the iterations of lame, whether any image is reliable
    (eta, sar), whether the source is confident (cotta), the second pass if it is needed, a guard,
    and the search for samples that are not finite. A compiled graph needs a real device.
    """
    options = VARIANTS[variant]
    if options["method"] in ("lame", "eta", "sar", "cotta") or "second_pass" in options:
        return
    if guarded(variant) or "nonfinite" in options or "compile" in options:
        return
    adapted = make(variant, convolutional().to("meta"))
    for size in (4, 1):
        assert adapted(images(size).to("meta")).shape == (size, 5)


def test_a_long_stream_leaves_no_growth(variant: str) -> None:
    """Neither in the state nor in the objects that Python keeps alive."""
    adapted = make(variant)
    batch = images(2, side=6)
    predictions(adapted, [images(512, side=6), *[batch] * 20])
    size = sum(tensor.untyped_storage().nbytes() for tensor in adapted.state_dict().values())
    gc.collect()
    gc.freeze()  # objects from before are not looked at again
    try:
        for _ in range(60):
            adapted(batch)
        gc.collect()
        assert len(gc.get_objects()) < 250
    finally:
        gc.unfreeze()
    after = sum(tensor.untyped_storage().nbytes() for tensor in adapted.state_dict().values())
    assert after <= size * 1.01 + 4096


def test_under_autocast_predictions_are_nearly_the_same(variant: str) -> None:
    usual, mixed = make(variant), make(variant)
    for batch in stream([8, 4, 2]):
        expected = usual(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = mixed(batch)
        difference = found.float().softmax(dim=1) - expected.softmax(dim=1)
        assert guarded(variant) or difference.abs().max() < 0.1


@pytest.mark.parametrize("name", ["realistic", "tbn", "alpha_bn", "tema", "rectified_tema"])
def test_the_order_of_images_inside_a_batch_does_not_matter(name: str) -> None:
    """Beyond rounding, neither to the predictions nor to the state."""
    adapted, shuffled = make(name), make(name)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    for batch in stream([16, 16, 16]):
        expected = adapted(batch)[order]
        torch.testing.assert_close(shuffled(batch[order]), expected, atol=1e-5, rtol=1e-4)
    for level, other in zip(adapted._levels(), shuffled._levels(), strict=True):
        if level is not adapted:  # serving keeps the last predictions in their order
            for key, value in level._state().items():
                torch.testing.assert_close(other._state()[key], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", METHOD_VARIANTS)
def test_batch_norm_only_at_the_end(name: str) -> None:
    with on_cpu():
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 6, 3),
            nn.BatchNorm2d(6),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 5),
        )
    adapted = make(name, randomize(model))
    for batch in stream([4, 1, 3]):
        assert torch.isfinite(adapted(batch)).all()
    assert len(adapted.report().layers) == (0 if name in UNTOUCHED else 1)


@pytest.mark.parametrize("name", METHOD_VARIANTS)
def test_a_batch_that_goes_past_every_batch_norm(name: str) -> None:
    """Methods that replace statistics predict as the model; a step finds no gradient."""

    class Past(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.idle = randomize(nn.BatchNorm2d(3, device=CPU))
            self.fc = randomize(nn.Linear(3, 5, device=CPU))

        def forward(self, inputs: Tensor) -> Any:
            return self.fc(inputs.mean(dim=(2, 3)))

    model = Past().eval()
    adapted = adapt(model, **method_only(name))
    method = VARIANTS[name]["method"]
    if method == "tent" or name.endswith("learning"):
        with pytest.raises(ModelError, match="no gradient reaches"):
            adapted(images(4))
        return
    logits = adapted(images(4))
    assert torch.isfinite(logits).all()
    if not trains(name) and method != "lame":
        with torch.no_grad():
            torch.testing.assert_close(logits, model(images(4)))


@pytest.mark.parametrize("name", METHOD_VARIANTS)
def test_group_norm_is_trained_skipped_or_refused(name: str) -> None:
    """Methods that replace statistics need BatchNorm, and say so; the others do without."""
    with on_cpu():
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 5)
        )
    if METHODS[VARIANTS[name]["method"]].takes_process_group:  # they replace statistics
        with pytest.raises(ModelError, match="no BatchNorm layer; it has 1 GroupNorm"):
            make(name, model)
        return
    adapted = make(name, model)
    first = predictions(adapted, stream([4, 1, 3]))
    assert all(torch.isfinite(logits).all() for logits in first)
    assert ("1.weight" in adapted.report().trained) == trains(name)
    assert type(adapted.freeze().get_submodule("1")) is nn.GroupNorm
    adapted.reset()
    assert equal(first, predictions(adapted, stream([4, 1, 3])))


def normalization(form: str, channels: int) -> nn.Module:
    if form == "group":
        return nn.GroupNorm(1, channels)
    return nn.BatchNorm2d(channels, affine=form != "plain")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["batch", "plain", "group"])),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from(list(VARIANTS)),
    st.integers(0, 2**31),
)
def test_random_models_keep_the_promises(
    layers: list[tuple[int, str]], sizes: list[int], name: str, seed: int
) -> None:
    """Any depth, any widths, any order of batch sizes: finite, repeatable, undone by reset."""
    modules: list[nn.Module] = []
    width = 3
    with on_cpu(seed):
        for channels, form in [(4, "batch"), *layers]:
            modules += [
                nn.Conv2d(width, channels, 3, padding=1),
                normalization(form, channels),
                nn.ReLU(),
            ]
            width = channels
        model = nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4))
    randomize(model, seed)
    before = snapshot(model)
    adapted = make(name, model)
    fresh = without_counters(snapshot(adapted))
    batches = stream(sizes, side=5)
    first = predictions(adapted, batches)
    assert all(torch.isfinite(logits).all() for logits in first)
    replaced = 0 if name in UNTOUCHED else 1 + sum(form != "group" for _, form in layers)
    assert len(adapted.report().layers) == replaced
    adapted.reset()
    assert same(fresh, without_counters(snapshot(adapted)))
    assert equal(first, predictions(adapted, batches))
    assert same(before, snapshot(model))


def test_the_subjects_do_not_follow_the_default_device() -> None:
    """Otherwise the tests of the default device would mean nothing."""
    with torch.device("meta"):
        assert all(tensor.device == CPU for tensor in convolutional().state_dict().values())
        assert images(1).device == CPU
