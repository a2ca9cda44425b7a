"""The C extension gives what the Python that stands in for it gives."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import images
from torch import Tensor

import realistic_tta
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.functional import kernel as kernel_module
from realistic_tta.functional.arrays import as_tensor, at_hand, quiet
from realistic_tta.functional.changes import Seen
from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.content import Content, whitened_squares
from realistic_tta.functional.image_moments import Units, image_moments, is_far
from realistic_tta.functional.kernel import Room, layer_at_once, marks_at_once, moments_at_once
from realistic_tta.functional.label_order import LabelOrder, read
from realistic_tta.functional.memories import Weights
from realistic_tta.functional.signature import signatures
from realistic_tta.layers.course import Course, Shares, Weighed, sight_of
from realistic_tta.layers.remembered_statistics import Known, RememberedStatistics
from realistic_tta.methods.realistic import Realistic
from realistic_tta.models.checkpoints import load_model

pytestmark = pytest.mark.skipif(
    kernel_module.kernel is None, reason="built without a C compiler: Python does all of it"
)
LAYOUTS = [torch.contiguous_format, torch.channels_last]


def without(patch: pytest.MonkeyPatch) -> None:
    """From now on Python does it."""
    patch.setattr(kernel_module, "kernel", None)


def units_of(channels: int, *, offset: float = 0.0) -> Units:
    generator = torch.Generator().manual_seed(channels)
    mean = torch.randn(channels, generator=generator) + offset
    source = ChannelStatistics(mean, torch.rand(channels, generator=generator) + 0.1)
    return Units.of(source, 1e-5, is_far=is_far(source))


def values(*shape: int, offset: float = 0.0, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + offset


def close(found: object, expected: object, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("offset", [0.0, 50.0], ids=["near", "far"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 4, 4), (3, 5, 7, 9), (2, 64, 33, 31), (2, 7, 2, 2)], ids=str
)
def test_moments_of_pictures(
    shape: tuple[int, ...],
    offset: float,
    layout: torch.memory_format,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In either layout, with and without a shift, with any rest of a vector's length."""
    own = units_of(shape[1], offset=offset)
    assert (own.shift is None) == (offset == 0)
    inputs = values(*shape, offset=offset).contiguous(memory_format=layout)
    found = moments_at_once(inputs, own.constant, own.slope, own.square_slope, own.shift)
    assert found is not None
    without(monkeypatch)
    close(found, image_moments(inputs, own), 2e-4)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 11), (2, 3, 4, 5, 6)], ids=str)
def test_moments_of_other_than_pictures(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, inputs = units_of(shape[1]), values(*shape)
    found = image_moments(inputs, own)
    without(monkeypatch)
    close(found, image_moments(inputs, own))


def test_moments_of_a_part_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As mirror images are cut off; and of every second image, which lie apart."""
    own, inputs = units_of(4), values(6, 4, 5, 5)
    found = [image_moments(each, own) for each in (inputs[:3], inputs[::2])]
    without(monkeypatch)
    for each, part in zip(found, (inputs[:3], inputs[::2]), strict=True):
        close(each, image_moments(part, own))


@pytest.mark.parametrize(
    "inputs",
    [values(2, 4, 5, 5).double(), values(2, 4, 5, 5).half(), values(2, 4, 5, 10)[..., ::2]],
    ids=["double", "half", "strided"],
)
def test_what_is_not_taken_is_left_to_python(inputs: Tensor) -> None:
    own = units_of(4)
    assert moments_at_once(inputs, own.constant, own.slope, own.square_slope, own.shift) is None


def test_large_inputs_are_left_to_the_threads_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    own, inputs = units_of(64), values(64, 64, 8, 8)
    look = own.constant, own.slope, own.square_slope, own.shift
    assert moments_at_once(inputs, *look) is not None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert moments_at_once(inputs, *look) is None
    assert moments_at_once(inputs[:1], *look) is not None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_a_number_comes_through(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the layer is found which overflowed: sums may be taken in any order, not dropped."""
    own, inputs = units_of(3), values(2, 3, 8, 8)
    inputs[1, 2, 3, 4] = bad
    found = image_moments(inputs, own)
    without(monkeypatch)
    with quiet():
        expected = image_moments(inputs, own)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    assert not np.isfinite(found[1, 2])


class OneLayer:
    """A rule, with what it needs around it."""

    def __init__(self, memories: int, channels: int, images: int, least: float | None) -> None:
        self.units, self.inputs = units_of(channels), values(images, channels, 6, 6, offset=0.5)
        rows = values(memories + 1, 3 * channels, seed=1) * 0.3
        gains = at_hand(torch.linspace(0.1, 1, memories + 1)[:, None])
        uncertainty = [0.02 * (place + 1) for place in range(memories)]
        before = at_hand(rows)[:, : 2 * channels]  # rows that do not lie next to each other
        usual = before[:1]
        self.shares = Shares(before, gains, usual, 0.3, 1.2, uncertainty, 0.0075, least)

    def rule(self) -> RememberedStatistics:
        memories = self.shares.before[:-1]
        known = Known(self.units, memories, 3.0, Room(len(self.units.source.mean)))
        none = Weights(memories, memories)
        weighed = Weighed([self.shares], none, memories, memories, memories)
        course = Course(
            None,
            lambda _: weighed,
            nothing=lambda: Seen(*[memories] * 3),
            doubt=0.0,
            batch=1,
            decay=1,
        )
        return RememberedStatistics(0, known, course)


@settings(max_examples=60, deadline=None)
@given(
    memories=st.integers(1, 5),
    channels=st.integers(1, 9),
    count=st.integers(1, 6),
    least=st.sampled_from([None, 0.0, 0.5, 1.0]),
)
def test_the_estimate_of_a_layer(
    memories: int, channels: int, count: int, least: float | None
) -> None:
    """All that a rule is asked for afterwards, for any number of memories, channels and images."""
    layer = OneLayer(memories, channels, count, least)
    fast, plain = layer.rule(), layer.rule()
    fast.statistics(layer.inputs)
    assert fast.known.room is not None
    assert fast.target is fast.known.room.target  # else Python did it
    plain.in_c = False
    plain.statistics(layer.inputs)
    assert fast.target is not None
    assert plain.target is not None
    close(fast.target.mean, plain.target.mean)
    close(fast.target.variance, plain.target.variance)
    close(fast.batch, plain.batch)
    close([fast.spread, fast.source_weight], [plain.spread, plain.source_weight])


def test_a_layer_that_is_used_twice_counts_both() -> None:
    """The first use in C, the second pooled with it in Python."""
    layer = OneLayer(3, 4, 5, 0.5)
    fast, plain = layer.rule(), layer.rule()
    plain.in_c = False
    for rule in (fast, plain):
        rule.statistics(layer.inputs)
        rule.statistics(values(5, 4, 3, 3, seed=9))
    assert fast.target is not None
    assert plain.target is not None
    close(fast.target.variance, plain.target.variance)


def test_arrays_that_do_not_fit_are_not_taken() -> None:
    """Nobody reads or writes behind the end of one."""
    layer = OneLayer(3, 4, 5, 0.5)
    units, shares = layer.units, layer.shares
    looks = units.constant, units.slope, units.square_slope, units.shift
    steps = shares.before, shares.gains, units.origin, units.scale
    numbers = shares.uncertainty, 1.0, 0.3, 1.2, 0.0075, 0.5
    assert layer_at_once(layer.inputs, (*looks, *steps), numbers, Room(4)) is not None
    wrong = [
        ((*looks, shares.before[:-1], *steps[1:]), numbers, Room(4)),
        ((*looks, steps[0], shares.gains[1:], *steps[2:]), numbers, Room(4)),
        ((units.constant[:1], *looks[1:], *steps), numbers, Room(4)),
        ((*looks, *steps), (shares.uncertainty[1:], *numbers[1:]), Room(4)),
        ((*looks, *steps), ([0.1] * 50, *numbers[1:]), Room(4)),
        ((*looks, *steps), (shares.uncertainty, "three", *numbers[2:]), Room(4)),
        ((*looks, *steps), numbers, Room(5)),
    ]
    for each in wrong:
        assert layer_at_once(layer.inputs, *each) is None
    kernel = kernel_module.kernel
    assert kernel.layer() is None
    assert kernel.estimate(1, 2) is None
    assert kernel.layer(*range(30)) is None
    for function in (kernel.image_moments, kernel.marks, kernel.sight, kernel.whitened):
        assert function() is function(None, None, None, None, None, None) is False
    assert kernel.read_forward(*[None] * 5) is kernel.read_backward(*[None] * 4) is False


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 3, 4, 4), (5, 16, 32, 32), (3, 40, 7, 9)], ids=str)
def test_what_is_seen_of_pictures(
    shape: tuple[int, ...], layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signature and content, of all channels or of some."""
    own, inputs = units_of(shape[1]), values(*shape).contiguous(memory_format=layout)
    found = sight_of(inputs, own, None, None)
    without(monkeypatch)
    expected = sight_of(inputs, own, None, None)
    close(found.signature, expected.signature)
    close(found.scatter, expected.scatter, 1e-3)
    assert (found.images, found.parts) == (expected.images, expected.parts)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("every", [1, 3])
def test_marks_of_any_number_of_channels(
    every: int, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are added up side by side, and a rest; with what is left of odd sides."""
    own, inputs = units_of(21), values(2, 21, 9, 38).contiguous(memory_format=layout)
    assert marks_at_once(inputs, own.source.mean, every) is not None
    found = signatures(inputs, own, every)
    without(monkeypatch)
    for each, expected in zip(found, signatures(inputs, own, every), strict=True):
        close(each, expected)


def test_pictures_that_lie_otherwise_are_left_to_python() -> None:
    """Neither columns nor channels next to each other: every second column, or turned on a side."""
    own = units_of(3)
    for inputs in (values(2, 3, 8, 16)[..., ::2], values(2, 3, 8, 8).transpose(2, 3)):
        assert marks_at_once(inputs, own.source.mean, 1) is None
        expected = signatures(inputs.contiguous(), own)
        for found, each in zip(signatures(inputs, own), expected, strict=True):
            close(found, each)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_wild_pictures_are_seen_alike(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    own, inputs = units_of(4), values(3, 4, 8, 8)
    inputs[1, 2, :3, :3] = bad
    found = sight_of(inputs, own, None, None)
    without(monkeypatch)
    expected = sight_of(inputs, own, None, None)
    close(found.signature, expected.signature)
    close(found.scatter, expected.scatter, 1e-3)


def test_distances_in_units_of_content(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, parts = values(17, 12), values(30, 12, seed=3)
    content = Content(at_hand(parts.T @ parts), at_hand(torch.tensor(9.0)))
    found = whitened_squares(content, 4, at_hand(rows))
    without(monkeypatch)
    close(found, whitened_squares(content, 4, at_hand(rows)), 1e-3)


def test_content_that_has_no_root_is_left_to_python() -> None:
    """As it is with NaN in it."""
    broken = at_hand(torch.full((4, 4), float("nan")))
    rows = at_hand(values(2, 4))
    assert kernel_module.whitened_at_once(broken, rows, 0.5, 1.0, 1e-4) is None


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 7), classes=st.integers(1, 12), sharp=st.floats(0.1, 30))
def test_labels_around_each_image(count: int, classes: int, sharp: float) -> None:
    predictions = at_hand((values(count, classes) * sharp).softmax(dim=1))
    known = LabelOrder.none(classes, torch.zeros(1))
    in_runs = known._replace(ways=torch.tensor([0.1, 0.3, 0.3, 0.3]))
    for before in (known, in_runs):
        order = LabelOrder(*map(at_hand, before))
        added, after = read(order, predictions, 0.99)
        with pytest.MonkeyPatch.context() as patch:
            without(patch)
            expected, expected_after = read(order, predictions, 0.99)
        assert (added is None) == (expected is None)
        if added is not None and expected is not None:
            close(as_tensor(added).exp(), as_tensor(expected).exp(), 1e-3)
        for found, other in zip(after, expected_after, strict=True):
            close(found, other)


@pytest.mark.parametrize("size", [1, 16])
def test_a_real_network_answers_alike_with_and_without(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a stream that changes its domain, with the mirror and without."""
    photos = load_sample().images[:96]
    shown = torch.from_numpy(photos).permute(0, 3, 1, 2).float().div(255)
    shown = torch.cat((shown[:48], 0.3 * shown[48:]))
    network = load_model("cifar10")
    fast, plain = (realistic_tta.adapt(network, "realistic") for _ in range(2))
    found = torch.cat([fast(each) for each in shown.split(size)])
    without(monkeypatch)
    expected = torch.cat([plain(each) for each in shown.split(size)])
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[name], value, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])  # noqa: S301 - our own
def test_copies_do_not_write_into_each_other(again: Callable[[Realistic], Realistic]) -> None:
    """A copy, or one from another process, works in rooms of its own."""
    adapted = realistic_tta.adapt(load_model("cifar10"), "realistic")
    assert isinstance(adapted, Realistic)
    adapted(images(4, side=32))
    other = again(adapted)
    mine, theirs = adapted._rooms[0], other._rooms[0]
    assert mine is not None
    assert theirs is not None
    assert mine.target.mean.data_ptr() != theirs.target.mean.data_ptr()
    assert theirs.target.mean.data_ptr() == as_tensor(theirs.mean).data_ptr()
    torch.testing.assert_close(other(images(2, side=32)), adapted(images(2, side=32)))


def test_without_the_extension_the_package_works() -> None:
    """As where nobody had a C compiler."""
    program = (
        "import sys; sys.modules['realistic_tta.functional._kernel'] = None\n"
        "import torch, realistic_tta\n"
        "from realistic_tta.functional.kernel import kernel\n"
        "from realistic_tta.models.checkpoints import load_model\n"
        "adapted = realistic_tta.adapt(load_model('cifar10'))\n"
        "print(kernel, tuple(adapted(torch.rand(2, 3, 32, 32)).shape))\n"
    )
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["None", "(2,", "10)"]
