"""The guard: who answers, when the method is taken back, and to what."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot
from torch import Tensor, nn

import realistic_tta
from realistic_tta import AdaptedModel, SettingError, StateError, adapt
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.corruptions import corrupt
from realistic_tta.errors import NonFiniteError
from realistic_tta.layers.replicas import Replicas
from realistic_tta.methods.catalogue import guarded
from realistic_tta.methods.guard import Guard, GuardSettings, sampled
from realistic_tta.methods.guard_state import continue_guard, guard_tensors, guard_words
from realistic_tta.models.checkpoints import load_model

CLASSES = 4
SMALL = {"window": 16, "least": 8, "every": 1, "patience": 32, "rest": 24}


class Telling(nn.Module):
    """Says of each row of `rows` which one it is; partial to the first, unless it is adapted.

    Counts the rows it is shown.
    """

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.norm = nn.BatchNorm1d(CLASSES)
        nn.init.constant_(self.norm.weight, 9.0)
        self.norm.get_buffer("running_mean")[0] = -0.8
        self.shown = 0

    def forward(self, batch: Tensor) -> Tensor:
        self.shown += len(batch)
        logits: Tensor = self.norm(batch)
        return logits


def rows(count: int) -> Tensor:
    return torch.eye(CLASSES, device="cpu").repeat(math.ceil(count / CLASSES), 1)[:count]


def watched(method: str = "tent", **settings: int) -> AdaptedModel:
    adapted = adapt(Telling().eval(), method)
    adapted.guard = Guard(GuardSettings(**{**SMALL, **settings}))
    return adapted


def guard_of(adapted: AdaptedModel) -> Guard:
    assert adapted.guard is not None
    return adapted.guard


def by_source(batch: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = Telling().eval()(batch)
    return logits


def lose_the_way(adapted: AdaptedModel) -> None:
    """From now on all images are of the first class."""
    weights = adapted.get_buffer("weights")  # (2 * CLASSES,): weights, then biases
    weights.zero_()
    weights[CLASSES] = 9


def find_the_way(adapted: AdaptedModel) -> None:
    """As before the first batch."""
    adapted.get_buffer("weights").copy_(watched().get_buffer("weights"))


def photographs(count: int, corruption: str | None = "fog", severity: int = 5) -> Tensor:
    shown = load_sample().images[:count]
    if corruption:
        shown = corrupt(shown, corruption, severity, generator=np.random.default_rng(0))
    return torch.from_numpy(shown).permute(0, 3, 1, 2) / 255


def test_a_good_method_answers_and_learns_as_without_a_guard() -> None:
    plain, adapted = watched(), watched()
    plain.guard = None
    for _ in range(6):
        assert torch.equal(plain(rows(12)), adapted(rows(12)))
    assert same(snapshot(plain), snapshot(adapted))
    assert (adapted.health().falls, adapted.health().by_source) == (0, 0)


def test_the_source_answers_until_there_is_enough_to_judge() -> None:
    adapted = watched(least=8)
    assert torch.equal(adapted(rows(4)), by_source(rows(4)))
    assert adapted.health().by_source == 4
    assert not torch.equal(adapted(rows(4)), by_source(rows(4)))


def test_a_trusted_method_costs_one_image_in_so_many() -> None:
    """After the first window, which the source is shown whole."""
    adapted = watched(window=16, every=3)
    for _ in range(12):
        adapted(rows(8))
    assert adapted.network.shown == 12 * 8 + 16 + len(range(18, 96, 3))


def test_images_are_sampled_evenly_over_batches_of_any_size() -> None:
    sizes, seen, found = [1, 3, 8, 2, 5, 1], 0, []
    for size in sizes:
        found += sampled(seen, size, every=4).tolist()
        seen += size
    assert [place for place, asked in enumerate(found) if asked] == [0, 4, 8, 12, 16]


def test_a_method_that_lost_its_way_goes_on_unheard_and_may_come_back() -> None:
    adapted = watched(patience=1000)
    adapted(rows(16))
    lose_the_way(adapted)
    for _ in range(4):
        assert torch.equal(adapted(rows(16)), by_source(rows(16)))
    assert int(adapted.step) == 5  # it has seen them all
    find_the_way(adapted)
    assert not torch.equal(adapted(rows(16)), by_source(rows(16)))
    assert (adapted.health().falls, adapted.health().by_source) == (0, 64)


@pytest.mark.parametrize(("alarm", "heard"), [(0.5, []), (0.0, [0, 1])])
def test_a_method_that_suddenly_says_nothing_is_judged_anew(alarm: float, heard: list[int]) -> None:
    """At once, not only when one image in so many has told it."""
    adapted = adapt(Telling().eval(), "tent")
    adapted.guard = Guard(GuardSettings(window=16, least=8, every=24, recent=8, alarm=alarm))
    for _ in range(7):
        adapted(rows(8))
    lose_the_way(adapted)
    answers = [adapted(rows(8)) for _ in range(3)]
    own = [place for place, each in enumerate(answers) if not each.equal(by_source(rows(8)))]
    assert own == heard


def test_after_a_while_it_returns_to_its_last_good_state_and_rests() -> None:
    adapted = watched(patience=32, rest=24)
    for _ in range(3):
        adapted(rows(16))
    guard = guard_of(adapted)
    good = guard.good
    assert good is not None
    assert int(good["step"]) == 3
    lose_the_way(adapted)
    for _ in range(2):
        adapted(rows(16))
    assert (adapted.health().falls, adapted.health().resets) == (1, 0)
    assert all(torch.equal(adapted.state_dict()[name], value) for name, value in good.items())
    before = snapshot(adapted)
    for _ in range(3):
        assert torch.equal(adapted(rows(8)), by_source(rows(8)))
        assert same(before, snapshot(adapted))
    assert not torch.equal(adapted(rows(8)), by_source(rows(8)))


def test_a_good_state_is_a_copy() -> None:
    adapted = watched()
    adapted(rows(16))
    good = guard_of(adapted).good
    assert good is not None
    before = {name: value.clone() for name, value in good.items()}
    adapted(rows(8))
    assert int(adapted.step) == 2
    assert same(before, good)


def test_without_a_good_state_it_returns_to_the_source() -> None:
    adapted = watched(patience=32)
    start = snapshot(adapted)
    lose_the_way(adapted)
    for _ in range(2):
        adapted(rows(16))
    assert (adapted.health().falls, adapted.health().resets) == (1, 1)
    assert same(start, snapshot(adapted))


def test_a_good_state_that_was_of_no_use_is_not_tried_twice() -> None:
    adapted = watched(patience=16, rest=8)
    start = snapshot(adapted)
    adapted(rows(16))
    for _ in range(2):
        lose_the_way(adapted)
        adapted(rows(16))
        adapted(rows(8))  # the rest
    assert (adapted.health().falls, adapted.health().resets) == (2, 1)
    assert same(start, snapshot(adapted))


def test_the_first_fall_is_a_warning_and_later_ones_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapted = watched(patience=16, rest=8)
    with caplog.at_level(logging.INFO, logger="realistic_tta"):
        for _ in range(3):
            lose_the_way(adapted)
            adapted(rows(16))
            adapted(rows(8))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert "tent was worse than the source for 16 images: back to its source" in caplog.text


def test_what_is_compared_is_copied() -> None:
    """The caller uses one tensor for all; the window still holds different images."""
    adapted, other = watched(patience=1000), watched(patience=1000)
    buffer = torch.empty(2, CLASSES, device="cpu")
    for start in range(0, 32, 2):
        buffer.copy_(rows(32)[start : start + 2])
        adapted(buffer).zero_()
        other(rows(32)[start : start + 2])
    compared, expected = guard_of(adapted).pairs.joined(), guard_of(other).pairs.joined()
    assert torch.equal(compared[0], expected[0])
    assert torch.equal(compared[1], expected[1])


def test_weights_that_are_not_finite_are_a_fall() -> None:
    adapted = watched()
    start = snapshot(adapted)
    adapted.get_buffer("weights").fill_(math.nan)
    assert torch.equal(adapted(rows(8)), by_source(rows(8)))
    assert same(start, snapshot(adapted))
    assert adapted.health().falls == 1


def broken(count: int) -> Tensor:
    batch = rows(count)
    batch[1, 2] = math.nan
    return batch


def test_faulty_images_are_none_of_the_guards_business() -> None:
    raising = adapt(Telling().eval(), "tent", guard=True, on_bad_input="raise")
    with pytest.raises(NonFiniteError):
        raising(broken(8))
    assert raising.health().falls == 0
    adapted = watched(patience=1000)
    for _ in range(8):
        adapted(broken(12))
    assert (adapted.health().falls, adapted.health().excluded) == (0, 8)
    assert all(torch.isfinite(each).all() for each in guard_of(adapted).pairs.joined())


@pytest.mark.parametrize("resting", [0, 100])
def test_faulty_images_are_answered_as_asked_while_the_source_answers(resting: int) -> None:
    """Whether the method goes on unheard or rests."""
    adapted = adapt(Telling().eval(), "tent", guard=True, bad_output="nan")
    guard_of(adapted).resting = resting
    outputs = adapted(broken(8))
    assert outputs[1].isnan().all()
    assert torch.equal(outputs[2:], by_source(rows(8))[2:])
    assert adapted.health().excluded == 1
    raising = adapt(Telling().eval(), "tent", guard=True, on_bad_input="raise")
    guard_of(raising).resting = resting
    with pytest.raises(NonFiniteError):
        raising(broken(8))
    assert guard_of(raising).resting == resting


def test_a_batch_that_fails_leaves_method_and_guard_as_they_were() -> None:
    adapted = watched()
    adapted(rows(16))
    before, memory = snapshot(adapted), guard_words(guard_of(adapted))
    for bad in (torch.ones(3, CLASSES + 1, device="cpu"), torch.ones(0, CLASSES, device="cpu")):
        with pytest.raises(realistic_tta.InputError):
            adapted(bad)
    assert same(before, snapshot(adapted))
    assert guard_words(guard_of(adapted)) == memory


def test_a_reset_ends_the_rest_and_forgets_the_good_state() -> None:
    adapted = watched()
    adapted(rows(16))
    guard_of(adapted).resting = 100
    adapted.reset()
    assert (guard_of(adapted).good, len(guard_of(adapted).pairs)) == (None, 0)
    adapted(rows(8))
    assert int(adapted.step) == 1


def test_copies_are_watched_too() -> None:
    adapted = watched(patience=16)
    lose_the_way(adapted)
    adapted(rows(8))
    for other in (copy.deepcopy(adapted), pickle.loads(pickle.dumps(adapted))):  # noqa: S301
        other(rows(8))
        assert other.health().falls == 1
    assert adapted.health().falls == 0


def loaded(path: Path, *, guard: bool = True) -> AdaptedModel:
    other = realistic_tta.load(path, Telling().eval(), guard=guard)
    if other.guard is not None:
        other.guard.settings = GuardSettings(**SMALL)
    return other


def test_a_saved_network_goes_on_with_its_guard_to_the_last_bit(tmp_path: Path) -> None:
    """Saved after every batch of a life with a good time, a doubt, a fall, a rest and a return."""
    adapted = watched()
    for number in range(20):
        if number == 5:
            lose_the_way(adapted)
        adapted.save(tmp_path / "state")
        other = loaded(tmp_path / "state")
        batch = rows(8)
        assert torch.equal(adapted(batch), other(batch))
        assert same(snapshot(adapted), snapshot(other))
        assert guard_words(guard_of(adapted)) == guard_words(guard_of(other))
        assert same(guard_tensors(guard_of(adapted)), guard_tensors(guard_of(other)))
        assert adapted.counts == other.counts
    assert adapted.health().falls == 1


def test_what_is_remembered_does_not_depend_on_the_callers_mode() -> None:
    adapted, plain = watched(), watched()
    for number in range(3):
        with torch.inference_mode(mode=number % 2 == 0):
            adapted(rows(16))
        plain(rows(16))
    held = guard_tensors(guard_of(adapted))
    assert same(held, guard_tensors(guard_of(plain)))
    assert not any(tensor.is_inference() for tensor in held.values())


def test_a_file_is_read_with_and_without_a_guard(tmp_path: Path) -> None:
    adapted = watched()
    adapted(rows(16))
    adapted.save(tmp_path / "guarded")
    assert loaded(tmp_path / "guarded", guard=False).guard is None
    adapted.guard = None
    adapted.save(tmp_path / "plain")
    assert len(guard_of(loaded(tmp_path / "plain")).pairs) == 0


@pytest.mark.parametrize(
    "words",
    ["", "[]", "{}", '{"trusted": 1}', guard_words(Guard()).replace("[]", "[3]"), "1"],
)
def test_a_memory_that_cannot_be_read_is_refused(words: str) -> None:
    with pytest.raises(StateError, match="what the guard remembers"):
        continue_guard(Guard(), words, {}, {})


def test_a_memory_of_another_form_is_refused() -> None:
    words = guard_words(Guard()).replace("[]", "[1]")
    tensors = {"guard.adapted": torch.ones(1, 4), "guard.source": torch.ones(1, 5)}
    with pytest.raises(StateError, match="does not belong"):
        continue_guard(Guard(), words, tensors, {})
    pair = {"guard.adapted": torch.ones(1, 4), "guard.source": torch.ones(1, 4)}
    for recent in (torch.ones(4), torch.ones(2, 5)):
        with pytest.raises(StateError, match="does not belong"):
            continue_guard(Guard(), words, pair | {"guard.recent": recent}, {})
    good = {"guard.good.step": torch.ones(2)}
    with pytest.raises(StateError, match="does not belong"):
        continue_guard(Guard(), guard_words(Guard()), good, {"step": torch.ones(())})


@pytest.mark.parametrize("name", list(SMALL))
def test_settings_are_whole_numbers(name: str) -> None:
    with pytest.raises(SettingError, match=f"{name} is 0; expected a whole number"):
        GuardSettings(**{name: 0})


def test_outputs_without_logits_are_let_pass() -> None:
    with on_cpu():
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    adapted = adapt(network, "tbn", guard=True)
    assert adapted(images(40)).shape == (40, 4, 10, 10)
    assert adapted.health().by_source == 0


def test_replicas_take_no_guard() -> None:
    adapted = adapt(convolutional(), "tema")
    adapted.replicas = Replicas.__new__(Replicas)  # a group of processes takes seconds to make
    with pytest.raises(SettingError, match="guard=True and sync cannot go together"):
        guarded(adapted, guard=True)


@pytest.mark.parametrize("method", ["tent", "tbn"])
def test_photographs_one_at_a_time_are_left_to_the_source(method: str) -> None:
    """Statistics of single images are no use."""
    network, shown = load_model("cifar10").eval(), photographs(40)
    adapted = adapt(network, method, guard=True)
    outputs = torch.cat([adapted(image) for image in shown.split(1)])
    with torch.no_grad():
        assert torch.equal(outputs, torch.cat([network(image) for image in shown.split(1)]))
    assert int(adapted.step) == 40


@pytest.mark.parametrize("method", ["tent", "tema"])
def test_clean_photographs_are_left_to_the_source(method: str) -> None:
    network, shown = load_model("cifar10").eval(), photographs(200, None)
    adapted = adapt(network, method, guard=True)
    with torch.no_grad():
        assert torch.equal(adapted(shown), network(shown))


def test_photographs_sorted_by_class_are_left_to_the_source() -> None:
    """Where a batch is of two classes, tent sees more; more classes are no merit then."""
    network = load_model("cifar10").eval()
    order = np.argsort(load_sample().labels[:200], kind="stable")
    adapted = adapt(network, "tent", guard=True)
    for batch in photographs(200, None)[torch.from_numpy(order)].split(40):
        with torch.no_grad():
            assert torch.equal(adapted(batch), network(batch))


@pytest.mark.parametrize("method", ["tent", "eta", "rectified_tema"])
def test_where_a_method_does_well_it_is_left_alone(method: str) -> None:
    adapted = adapt(load_model("cifar10"), method, guard=True)
    plain = adapt(load_model("cifar10"), method)
    for batch in photographs(100).split(50):
        assert torch.equal(adapted(batch), plain(batch))
    assert adapted.health().by_source == 0


@pytest.mark.parametrize("method", ["tent", "tbn"])
def test_frames_off_the_scale_are_noticed_at_once(method: str) -> None:
    """One in five, after 128 good images; from the fourth batch on the source answers."""
    network, shown = load_model("cifar10"), photographs(256)
    shown[128::5] *= 1000
    adapted = adapt(network, method, guard=True)
    by_method = []
    for batch in shown.split(16):
        before = adapted.health().by_source
        adapted(batch)
        by_method.append(adapted.health().by_source == before)
    assert by_method[7]
    assert not any(by_method[11:])


def test_cotta_is_judged_by_its_teachers_look_at_the_batch_itself() -> None:
    """Not by the mean over views, nor by the student; faulty samples are not among them."""
    adapted = adapt(
        convolutional(), "cotta", guard=True, views=3, threshold=1.0, teacher_momentum=0.5
    )
    whole = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    adapted(whole)
    teacher = convolutional()
    nn.utils.vector_to_parameters(adapted.get_buffer("teacher").clone(), teacher.parameters())
    faulty = whole.clone()
    faulty[1, 0, 0, 0] = math.nan
    adapted(faulty)
    assert adapted.guard is not None
    (first, _), (second, _) = adapted.guard.pairs.batches
    torch.testing.assert_close(first, adapt(convolutional(), "tbn")(whole))
    torch.testing.assert_close(second, adapt(teacher, "tbn")(whole[[0, 2, 3]]))
    assert not torch.allclose(first[[0, 2, 3]], second, atol=1e-3)


@pytest.mark.parametrize(("threshold", "passes"), [(0.0, 3), (1.0, 1 + 3 + 1 + 1)])
def test_the_guard_costs_cotta_one_look_and_only_where_it_takes_views(
    threshold: float, passes: int
) -> None:
    """Source, teacher or its views, one look at the batch if there were views, student."""
    adapted = adapt(convolutional(), "cotta", views=3, threshold=threshold, guard=True)
    guard_of(adapted).pairs.add(torch.eye(64, 5), torch.zeros(64, 5), window=64)
    guard_of(adapted).trusted, guard_of(adapted).seen = True, 1  # so that the source is not asked
    seen: list[int] = []
    adapted.network.register_forward_hook(lambda *_: seen.append(1))
    adapted(images(4))
    assert len(seen) == passes
