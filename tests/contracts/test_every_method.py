"""What every method of the catalogue promises. A new method joins by being in the catalogue."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import CPU, convolutional, images, on_cpu, randomize, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import METHODS, AdaptedModel, InputError, ModelError, StateError, adapt
from realistic_tta.methods.batch_norm_method import BatchNormMethod
from realistic_tta.methods.gradient_method import GradientMethod

VARIANTS: dict[str, dict[str, object]] = {name: {"method": name} for name in METHODS}
VARIANTS["rectified_tema, one pass"] = {"method": "rectified_tema", "passes": 1}
VARIANTS["rectified_tema from source"] = {"method": "rectified_tema", "start": "source"}
VARIANTS["tema, fixed momentum"] = {"method": "tema", "momentum": 0.3}
for name in ("rectified_tema", "realistic"):  # the two rules; tests/methods/test_robust.py
    VARIANTS[f"{name}, robust"] = {"method": name, "robust": True}
VARIANTS["tent, three steps"] = {"method": "tent", "steps": 3}
VARIANTS["tent, episodic"] = {"method": "tent", "episodic": True}
# Random networks are sure of nothing: with these settings every image is learnt from.
VARIANTS["eta, learning"] = {"method": "eta", "entropy_threshold": 1.0, "margin": 2.0}
VARIANTS["sar, learning"] = {"method": "sar", "entropy_threshold": 1.0}
# Four views show what 32 do, in an eighth of the time.
VARIANTS["cotta"] = {"method": "cotta", "views": 4}
VARIANTS["cotta, sure"] = {"method": "cotta", "preset": "imagenet_c", "threshold": 0.0}
# Refined labels, and a queue that is overwritten from the second batch on.
VARIANTS["adacontrast, small"] = {"method": "adacontrast", "queue_size": 8, "refine_after": 3}

PASSES = {"rectified_tema": 2, "rectified_tema from source": 2, "tent, three steps": 3}
PASSES |= {"rectified_tema, robust": 2}
PASSES |= {"sar, learning": 2, "cotta": 6, "cotta, sure": 3}
PASSES |= {"adacontrast": 5, "adacontrast, small": 5}
# Half a minute each, through no line that another variant does not compile: adacontrast has views
# too, and cotta without any has the rest of it.
NOT_COMPILED = {"tent, three steps", "tent, episodic", "eta", "sar"}
NOT_COMPILED |= {"cotta", "adacontrast, small"}
# Another size of batch is compiled anew, which takes as long again: those that are made for it
# (`compile=True`), and one that trains.
COMPILED_TWICE = {name for name, each in VARIANTS.items() if METHODS[str(each["method"])].compiles}
COMPILED_TWICE |= {"tent"}
UNTOUCHED = {"source", "lame"}  # methods that leave the network as it was trained

SIZES = [5, 16, 1, 64, 3, 1, 1]


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> dict[str, object]:
    return VARIANTS[request.param]


def make(variant: dict[str, object], network: nn.Module | None = None) -> AdaptedModel:
    return adapt(network or convolutional(), **variant)  # type: ignore[arg-type]


def name_of(variant: dict[str, object]) -> str:
    return next(name for name, known in VARIANTS.items() if known == variant)


def trains(variant: dict[str, object]) -> bool:
    return issubclass(METHODS[str(variant["method"])], GradientMethod)


def predictions(adapted: AdaptedModel, batches: list[Tensor]) -> list[Tensor]:
    return [adapted(batch) for batch in batches]


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_any_batch_size_gives_one_finite_prediction_an_image(variant: dict[str, object]) -> None:
    adapted = make(variant)
    for batch, size in zip(stream(SIZES), SIZES, strict=True):
        logits = adapted(batch)
        assert logits.shape == (size, 5)
        assert torch.isfinite(logits).all()
        assert not logits.requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_the_network_passed_in_stays_as_it_was(variant: dict[str, object], training: bool) -> None:
    network = convolutional().train(training)
    modes = [module.training for module in network.modules()]
    kinds = [type(module) for module in network.modules()]
    before = snapshot(network)
    adapted = make(variant, network)
    predictions(adapted, stream(SIZES))
    adapted.reset()
    adapted.freeze()
    assert same(before, snapshot(network))
    assert [module.training for module in network.modules()] == modes
    assert [type(module) for module in network.modules()] == kinds
    assert all(parameter.grad is None for parameter in network.parameters())


def test_same_stream_same_predictions_whatever_ran_before(variant: dict[str, object]) -> None:
    first = predictions(make(variant), stream(SIZES))
    torch.manual_seed(7)
    torch.rand(1000)
    for other in METHODS:
        predictions(make(VARIANTS[other]), stream([4, 4]))
    assert equal(first, predictions(make(variant), stream(SIZES)))


def test_reset_restores_every_buffer(variant: dict[str, object]) -> None:
    """After reset a method predicts as if it had seen nothing."""
    adapted = make(variant)
    fresh = snapshot(adapted)
    first = predictions(adapted, stream(SIZES))
    adapted.reset()
    assert same(fresh, snapshot(adapted))
    assert equal(first, predictions(adapted, stream(SIZES)))


def test_state_continues_bit_for_bit(variant: dict[str, object]) -> None:
    adapted = make(variant)
    batches = stream(SIZES)
    predictions(adapted, batches[:3])
    state = snapshot(adapted)
    rest = predictions(adapted, batches[3:])
    other = make(variant)
    other.load_state_dict(state)
    assert equal(rest, predictions(other, batches[3:]))
    assert same(snapshot(adapted), snapshot(other))
    assert int(other.step) == len(SIZES)


ELSEWHERE = """
import sys, torch, realistic_tta
sys.path.insert(0, sys.argv[2])
import subjects
torch.set_num_threads(1)
variants, states, batch = torch.load(sys.argv[1] + "/states.pt")
logits = {}
for name, variant in variants.items():
    adapted = realistic_tta.adapt(subjects.convolutional(), **variant)
    adapted.load_state_dict(states[name])
    logits[name] = adapted(batch)
torch.save(logits, sys.argv[1] + "/logits.pt")
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tensor, Tensor]]:
    """What each variant predicts after two batches, here and in one new process for all."""
    folder, batches = tmp_path_factory.mktemp("elsewhere"), stream([4, 3, 2])
    all_adapted = {name: make(variant) for name, variant in VARIANTS.items()}
    for adapted in all_adapted.values():
        predictions(adapted, batches[:2])
    states = {name: adapted.state_dict() for name, adapted in all_adapted.items()}
    torch.save((VARIANTS, states, batches[2]), folder / "states.pt")
    here = {name: adapted(batches[2]) for name, adapted in all_adapted.items()}
    tests = Path(__file__).parents[1]
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", ELSEWHERE, str(folder), str(tests)], check=True
    )
    there = torch.load(folder / "logits.pt")
    return {name: (logits, there[name]) for name, logits in here.items()}


def test_state_continues_in_a_new_process(
    variant: dict[str, object], elsewhere: dict[str, tuple[Tensor, Tensor]]
) -> None:
    here, there = elsewhere[name_of(variant)]
    assert torch.equal(here, there)


def test_copies_and_files_go_on_as_the_original(variant: dict[str, object]) -> None:
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
    expected = adapted(batches[2])
    for other in others:
        assert torch.equal(other(batches[2]), expected)
        assert same(snapshot(adapted), snapshot(other))


class Fragile(nn.Module):
    """Fails behind its BatchNorm layers, on demand, with an error of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()
        self.error: BaseException | None = None
        self.calls_left = 0

    def forward(self, batch: Tensor) -> Tensor:
        outputs: Tensor = self.body(batch)
        self.calls_left -= 1
        if self.error is not None and self.calls_left < 0:
            raise self.error
        return outputs


@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), KeyError("boom"), KeyboardInterrupt()], ids=repr
)
@pytest.mark.parametrize("passes_before", [0, 1])
def test_a_forward_that_raises_changes_nothing(
    variant: dict[str, object], error: BaseException, passes_before: int
) -> None:
    adapted = make(variant, Fragile())
    fragile = adapted.network
    assert isinstance(fragile, Fragile)
    predictions(adapted, stream([4, 2]))
    before = snapshot(adapted)
    fragile.error, fragile.calls_left = error, passes_before
    if PASSES.get(name_of(variant), 1) == 1:
        fragile.calls_left = 0  # there is no second pass to fail in
    with pytest.raises(type(error)):
        adapted(images(8, seed=5))
    assert same(before, snapshot(adapted))
    fragile.error = None
    expected = make(variant, Fragile())
    expected.load_state_dict(before)
    assert torch.equal(adapted(images(8, seed=5)), expected(images(8, seed=5)))


def test_between_calls_the_network_inside_is_the_source(variant: dict[str, object]) -> None:
    """No rule outlives its pass, whether the pass succeeds or fails."""
    network, batch = convolutional(), images(4)
    adapted = make(variant, network)
    predictions(adapted, stream([4, 1]))
    with torch.no_grad():
        expected = network(batch)
        assert torch.equal(adapted.network(batch), expected)
        with pytest.raises((RuntimeError, ValueError)):
            adapted(torch.rand(2, 4, 12, 12))
        assert torch.equal(adapted.network(batch), expected)


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
def test_bad_input_is_named_and_changes_nothing(variant: dict[str, object], case: str) -> None:
    batch, words = BAD[case]
    adapted = make(variant | {"on_bad_input": "raise"})
    predictions(adapted, stream([4, 2]))
    before = snapshot(adapted)
    with pytest.raises(InputError, match=words):
        adapted(batch)
    assert same(before, snapshot(adapted))


@pytest.mark.parametrize("shape", [(2, 4, 12, 12), (12,), (2, 3, 12), (3, 12, 12)], ids=str)
def test_a_wrong_shape_names_the_layer_and_changes_nothing(
    variant: dict[str, object], shape: tuple[int, ...]
) -> None:
    adapted = make(variant)
    adapted(images(4))
    before = snapshot(adapted)
    with pytest.raises((RuntimeError, ValueError), match='layer "'):
        adapted(torch.rand(shape))
    assert same(before, snapshot(adapted))


def test_a_state_of_another_network_is_refused_whole(variant: dict[str, object]) -> None:
    adapted = make(variant)
    adapted(images(4))
    before = snapshot(adapted)
    wrong = snapshot(make(variant, convolutional(classes=6)))
    for key in wrong:
        if wrong[key].is_floating_point():
            wrong[key] += 1
    missing = {key: value for key, value in wrong.items() if key != "step"}
    for state in (wrong, missing, wrong | {"surplus": torch.zeros(1)}):
        with pytest.raises(StateError, match="Nothing was loaded"):
            adapted.load_state_dict(state)
        assert same(before, snapshot(adapted))


def test_frozen_is_the_plain_original_with_what_the_method_would_now_use(
    variant: dict[str, object],
) -> None:
    network = convolutional().train()
    adapted = make(variant, network)
    batch = images(16, seed=9)
    predictions(adapted, stream([16, 16]))
    logits = adapted(batch)
    plain = adapted.freeze()
    assert [type(module) for module in plain.modules()] == [type(m) for m in network.modules()]
    assert not any(module.training for module in plain.modules())
    convolutional().load_state_dict(plain.state_dict())
    with torch.no_grad():
        again = plain(batch)
    if variant == VARIANTS["cotta"]:
        # It predicted the mean over views; a plain network looks once, at the batch itself.
        assert torch.isfinite(again).all()
    elif variant == VARIANTS["rectified_tema, one pass"] or trains(variant):
        # It predicted with the prior, or the weights, as they were before this batch; the next
        # will use the new ones.
        assert (again - logits).abs().max() < 0.1
    elif variant["method"] == "domains":
        # Several kinds of images had statistics of their own; a plain network has one set of them.
        assert 0 < (again - logits).abs().max() < 0.1
    elif variant["method"] == "lame":
        # What it corrects is the batch, not the network.
        with torch.no_grad():
            assert torch.equal(again, network.eval()(batch))
    else:
        torch.testing.assert_close(again, logits, atol=1e-5, rtol=1e-4)
    assert same(snapshot(plain), snapshot(adapted.freeze()))


def test_frozen_before_the_first_batch_is_the_source(variant: dict[str, object]) -> None:
    network = convolutional()
    assert same(snapshot(make(variant, network).freeze()), snapshot(network))
    adapted = make(variant, network)
    adapted(images(4))
    adapted.reset()
    assert same(snapshot(adapted.freeze()), snapshot(network))


def test_freezing_and_reporting_change_nothing(variant: dict[str, object]) -> None:
    adapted = make(variant)
    adapted(images(4))
    before = snapshot(adapted)
    adapted.freeze()(images(2))
    str(adapted.report())
    assert same(before, snapshot(adapted))


def test_dropout_stays_off_whatever_train_is_told(variant: dict[str, object]) -> None:
    batch = images(8)
    expected = make(variant)(batch)
    assert torch.equal(make(variant).train()(batch), expected)


def test_inference_mode_can_come_and_go(variant: dict[str, object]) -> None:
    adapted, reference = make(variant), make(variant)
    batches = stream([4, 2, 1, 3])
    expected = predictions(reference, batches)
    for number, batch in enumerate(batches):
        with torch.inference_mode(number % 2 == 0):
            assert torch.equal(adapted(batch), expected[number])
    adapted.reset()
    adapted.load_state_dict(snapshot(reference))
    assert torch.equal(adapted(batches[0]), reference(batches[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_device_and_dtype_follow_the_network(
    variant: dict[str, object], dtype: torch.dtype
) -> None:
    """Statistics are kept in float32 or better, before and after a conversion.

    Of lame the probabilities are compared, and less strictly: where they are near 0 their
    logarithms differ by anything, and its rounds magnify what rounding has made different.
    """
    single = make(variant)
    converted = make(variant, convolutional().to(dtype))
    later = make(variant).to(dtype)
    for batch in stream([8, 4, 2]):
        expected = single(batch)
        for adapted in (converted, later):
            logits = adapted(batch.to(dtype))
            assert logits.dtype == dtype
            tolerance = {torch.float16: 0.02, torch.bfloat16: 0.15}.get(dtype, 1e-5)
            found = logits.float()
            if variant["method"] == "lame":
                found, wanted = found.softmax(dim=1), expected.softmax(dim=1)
                tolerance *= 4
            else:
                wanted = expected
            torch.testing.assert_close(found, wanted, atol=tolerance, rtol=0.0)
    for adapted in (converted, later):
        kept = [b for b in adapted.buffers(recurse=False) if b.is_floating_point()]
        assert all(buffer.dtype.itemsize >= 4 for buffer in kept)


def test_channels_last_gives_the_same(variant: dict[str, object]) -> None:
    network: Any = convolutional()
    usual = make(variant)
    last = make(variant, network.to(memory_format=torch.channels_last))
    for batch in stream([8, 4, 1]):
        logits = last(batch.contiguous(memory_format=torch.channels_last))
        torch.testing.assert_close(logits, usual(batch), atol=1e-5, rtol=1e-4)


def test_nothing_relies_on_the_default_device(variant: dict[str, object]) -> None:
    """What runs here on a CPU while the default is elsewhere must run on a GPU."""
    expected = predictions(make(variant), stream([8, 1, 3]))
    network, batches = convolutional(), stream([8, 1, 3])
    with torch.device("meta"):
        adapted = make(variant, network)
        found = predictions(adapted, batches)
        str(adapted.report())
        adapted.freeze()
        adapted.load_state_dict(adapted.state_dict())
        adapted.reset()
        again = predictions(adapted, batches)
    assert equal(found, expected)
    assert equal(again, expected)


def test_the_host_waits_for_the_device_only_to_check(
    variant: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the two checks a whole prediction runs on tensors that have no values to wait for.

    Not so where the values decide what is done: lame stops when its energy stands still, eta and
    sar do without a backward pass, by far the longer wait, when no image is reliable; cotta looks
    at no views where the source is sure; domains knows an image's kind before it looks at the next.
    """
    if variant["method"] in ("lame", "eta", "sar", "cotta", "domains"):
        return
    monkeypatch.setattr("realistic_tta.methods.batch._check", lambda *_: None)
    monkeypatch.setattr(BatchNormMethod, "_first_not_finite", lambda *_: None)
    adapted = make(variant, convolutional().to("meta"))
    for size in (4, 1):
        assert adapted(images(size).to("meta")).shape == (size, 5)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # dynamo looks, and hides it
@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in NOT_COMPILED])
def test_under_torch_compile(name: str) -> None:
    """Breaks of the graph allowed; tests/methods/test_compiled.py has those without."""
    variant, backend = VARIANTS[name], "eager"
    batches = stream([4, 4, 2] if name in COMPILED_TWICE else [4, 4])
    torch._dynamo.reset()
    expected = predictions(make(variant), batches)
    compiled = torch.compile(make(variant), backend=backend)
    for batch, logits in zip(batches, expected, strict=True):
        torch.testing.assert_close(compiled(batch), logits, atol=1e-5, rtol=1e-4)
    network: Any = torch.compile(convolutional(), backend=backend)
    inside = make(variant, network)
    assert equal(predictions(inside, batches), expected)


def test_a_long_stream_leaves_no_growth(variant: dict[str, object]) -> None:
    """Neither in what is stored nor in what Python keeps alive."""
    adapted = make(variant)
    batch = images(2, side=6)
    predictions(adapted, [batch] * 20)
    size = sum(tensor.numel() for tensor in adapted.state_dict().values())
    gc.collect()
    alive = len(gc.get_objects())
    for _ in range(150):
        adapted(batch)
    gc.collect()
    assert len(gc.get_objects()) - alive < 50
    assert sum(tensor.numel() for tensor in adapted.state_dict().values()) == size


def test_under_autocast_predictions_are_nearly_the_same(variant: dict[str, object]) -> None:
    usual, mixed = make(variant), make(variant)
    for batch in stream([8, 4, 2]):
        expected = usual(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = mixed(batch)
        difference = found.float().softmax(dim=1) - expected.softmax(dim=1)
        assert difference.abs().max() < 0.1


def test_batch_norm_only_at_the_end(variant: dict[str, object]) -> None:
    with on_cpu():
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 6, 3),
            nn.BatchNorm2d(6),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 5),
        )
    adapted = make(variant, randomize(network))
    for batch in stream([4, 1, 3]):
        assert torch.isfinite(adapted(batch)).all()
    assert len(adapted.report().layers) == (0 if variant["method"] in UNTOUCHED else 1)


def test_group_norm_is_trained_left_alone_or_refused(variant: dict[str, object]) -> None:
    """Methods that exchange statistics need BatchNorm, and say so; the others do without."""
    with on_cpu():
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 5)
        )
    method = METHODS[str(variant["method"])]
    if issubclass(method, BatchNormMethod) and method.needs_batch_norm:
        with pytest.raises(ModelError, match="no BatchNorm layer; it has 1 GroupNorm"):
            make(variant, network)
        return
    adapted = make(variant, network)
    fresh = snapshot(adapted)
    first = predictions(adapted, stream([4, 1, 3]))
    assert all(torch.isfinite(logits).all() for logits in first)
    assert ("1.weight" in adapted.report().trained) == trains(variant)
    assert type(adapted.freeze().get_submodule("1")) is nn.GroupNorm
    adapted.reset()
    assert same(fresh, snapshot(adapted))
    assert equal(first, predictions(adapted, stream([4, 1, 3])))


def normalization(kind: str, channels: int) -> nn.Module:
    if kind == "group":
        return nn.GroupNorm(1, channels)
    return nn.BatchNorm2d(channels, affine=kind != "plain")


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
def test_random_networks_keep_the_promises(
    layers: list[tuple[int, str]], sizes: list[int], name: str, seed: int
) -> None:
    """Any depth, any widths, any order of batch sizes: finite, repeatable, undone by reset."""
    modules: list[nn.Module] = []
    width = 3
    with on_cpu(seed):
        for channels, kind in [(4, "batch"), *layers]:
            modules += [
                nn.Conv2d(width, channels, 3, padding=1),
                normalization(kind, channels),
                nn.ReLU(),
            ]
            width = channels
        network = nn.Sequential(
            *modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4)
        )
    randomize(network, seed)
    before = snapshot(network)
    adapted = make(VARIANTS[name], network)
    fresh = snapshot(adapted)
    batches = stream(sizes, side=5)
    first = predictions(adapted, batches)
    assert all(torch.isfinite(logits).all() for logits in first)
    replaced = 0 if name in UNTOUCHED else 1 + sum(kind != "group" for _, kind in layers)
    assert len(adapted.report().layers) == replaced
    adapted.reset()
    assert same(fresh, snapshot(adapted))
    assert equal(first, predictions(adapted, batches))
    assert same(before, snapshot(network))


def test_the_device_of_the_subjects_is_named() -> None:
    """The tests above mean something only if the subjects do not follow the default device."""
    with torch.device("meta"):
        assert all(tensor.device == CPU for tensor in convolutional().state_dict().values())
        assert images(1).device == CPU
