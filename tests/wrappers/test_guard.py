"""guard=True: which model answers, when the method is rolled back, and to which state."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot
from torch import Tensor, nn

from realistic_tta import (
    SGD,
    GuardSettings,
    NonFiniteError,
    OptionError,
    ServedModel,
    adapt,
    load,
)
from realistic_tta.wrappers.guard import every_nth

CLASSES = 4
SMALL = GuardSettings(window=16, min_images=8, every=1, patience=32, rest=24)


class Rows(nn.Module):
    """Tells the rows of `rows` apart, but prefers the first class unless it is adapted.

    Counts the rows it sees.
    """

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.norm = nn.BatchNorm1d(CLASSES)
        nn.init.constant_(self.norm.weight, 9.0)
        self.norm.get_buffer("running_mean")[0] = -0.8
        self.rows_seen = 0

    def forward(self, batch: Tensor) -> Tensor:
        self.rows_seen += len(batch)
        logits: Tensor = self.norm(batch)
        return logits


def rows(count: int) -> Tensor:
    return torch.eye(CLASSES).repeat(math.ceil(count / CLASSES), 1)[:count]


def guarded(settings: GuardSettings = SMALL, **options: Any) -> ServedModel:
    return adapt(Rows().eval(), "tent", guard=settings, **options)


def source(batch: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = Rows().eval()(batch)
    return logits


def set_weights(adapted: ServedModel, weights: Tensor) -> None:
    """Replaces the trained weights, as a commit would."""
    adapted._innermost._buffers["weights"] = weights


def collapse(adapted: ServedModel) -> None:
    """From now on the method predicts the first class for every image."""
    weights = torch.zeros(2 * CLASSES)  # weights, then biases
    weights[CLASSES] = 9
    set_weights(adapted, weights)


def recover(adapted: ServedModel) -> None:
    set_weights(adapted, guarded()._innermost._state()["weights"])


def counts(adapted: ServedModel) -> tuple[int, int]:
    health = adapted.health()
    return health.rollbacks, health.source_answers


def test_a_good_method_answers_and_adapts_as_without_a_guard() -> None:
    plain, adapted = adapt(Rows().eval(), "tent"), guarded()
    for _ in range(6):
        assert torch.equal(plain(rows(12)), adapted(rows(12)))
    assert same(snapshot(plain._innermost), snapshot(adapted._innermost))
    assert counts(adapted) == (0, 0)


def test_the_source_answers_until_there_is_enough_to_compare() -> None:
    adapted = guarded()
    assert torch.equal(adapted(rows(4)), source(rows(4)))
    assert counts(adapted) == (0, 4)
    assert not torch.equal(adapted(rows(4)), source(rows(4)))


def test_a_trusted_method_is_compared_on_one_in_so_many_images() -> None:
    """After the first window, which the source sees whole."""
    adapted = guarded(GuardSettings(window=16, min_images=8, every=3))
    for _ in range(12):
        adapted(rows(8))
    assert adapted.rows_seen == 12 * 8 + 16 + len(range(18, 96, 3))


def test_images_are_sampled_evenly_over_batches_of_any_size() -> None:
    seen, found = 0, []
    for size in [1, 3, 8, 2, 5, 1]:
        found += every_nth(seen, size, every=4).tolist()
        seen += size
    assert [place for place, asked in enumerate(found) if asked] == [0, 4, 8, 12, 16]


def test_a_method_judged_worse_keeps_adapting_and_may_return() -> None:
    adapted = guarded(GuardSettings(window=16, min_images=8, every=1, patience=1000))
    adapted(rows(16))
    collapse(adapted)
    for _ in range(4):
        assert torch.equal(adapted(rows(16)), source(rows(16)))
    assert adapted.report().batches == 5
    recover(adapted)
    assert not torch.equal(adapted(rows(16)), source(rows(16)))
    assert counts(adapted) == (0, 64)


@pytest.mark.parametrize(("alarm", "answered"), [(0.5, []), (0.0, [0, 1])])
def test_a_sudden_loss_of_information_is_noticed_at_once(alarm: float, answered: list[int]) -> None:
    """Not only when one image in so many has shown it."""
    settings = GuardSettings(window=16, min_images=8, every=24, recent=8, alarm=alarm)
    adapted = guarded(settings)
    for _ in range(7):
        adapted(rows(8))
    collapse(adapted)
    outputs = [adapted(rows(8)) for _ in range(3)]
    own = [place for place, each in enumerate(outputs) if not each.equal(source(rows(8)))]
    assert own == answered


def test_a_rollback_restores_the_last_good_state_and_rests() -> None:
    adapted = guarded()
    for _ in range(3):
        adapted(rows(16))
    good = snapshot(adapted._innermost)
    collapse(adapted)
    for _ in range(2):
        adapted(rows(16))
    assert adapted.health().rollbacks == 1
    assert same(good, snapshot(adapted._innermost))
    for _ in range(3):  # 24 images of rest
        assert torch.equal(adapted(rows(8)), source(rows(8)))
        assert same(good, snapshot(adapted._innermost))
    assert not torch.equal(adapted(rows(8)), source(rows(8)))


def test_a_rollback_restores_the_wrappers_inside_too() -> None:
    adapted = guarded(smooth_labels=True)
    for _ in range(3):
        adapted(rows(16))
    levels = list(adapted._levels())
    assert [level.name for level in levels] == ["serving", "guard", "smooth_labels", "tent"]
    good = snapshot(levels[2])
    collapse(adapted)
    while not adapted.health().rollbacks:
        adapted(rows(16))
    assert same(good, snapshot(levels[2]))


def test_without_a_good_state_a_rollback_is_a_reset_of_the_method() -> None:
    adapted = guarded()
    start = snapshot(adapted._innermost)
    collapse(adapted)
    for _ in range(2):
        adapted(rows(16))
    assert counts(adapted) == (1, 32)
    assert same(start, snapshot(adapted._innermost))
    assert adapted.health().resets == 0


def test_a_good_state_that_was_of_no_use_is_not_tried_twice() -> None:
    adapted = guarded(GuardSettings(window=16, min_images=8, every=1, patience=16, rest=8))
    start = snapshot(adapted._innermost)
    adapted(rows(16))
    for _ in range(2):
        collapse(adapted)
        adapted(rows(16))
        adapted(rows(8))  # the rest
    assert adapted.health().rollbacks == 2
    assert same(start, snapshot(adapted._innermost))


def test_a_method_that_collapses_by_its_own_steps_is_answered_by_the_source() -> None:
    """tent with a huge learning rate: a third of its predictions are wrong, 3 percent with it."""
    model = Rows().eval()
    nn.init.constant_(model.norm.weight, 3.0)
    model.norm.get_buffer("running_mean").fill_(0.25)
    model.norm.get_buffer("running_var").fill_(0.25)
    settings = GuardSettings(window=16, min_images=8, every=1, patience=48, rest=64)
    plain = adapt(model, "tent", optimizer=SGD(lr=1e4))
    adapted = adapt(model, "tent", optimizer=SGD(lr=1e4), guard=settings)
    labels, wrong = rows(8).argmax(dim=1), {"plain": 0, "guarded": 0, "source": 0}
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        batch = rows(8) + 0.3 * torch.randn(8, CLASSES, generator=generator)
        with torch.no_grad():
            outputs = {"plain": plain(batch), "guarded": adapted(batch), "source": model(batch)}
        for name, each in outputs.items():
            wrong[name] += int((each.argmax(dim=1) != labels).sum())
    rollbacks, source_answers = counts(adapted)
    assert wrong["plain"] > 4 * wrong["source"]
    assert wrong["guarded"] <= wrong["source"] + 2
    assert rollbacks >= 2
    assert source_answers > 280  # of 320


def test_weights_that_are_not_finite_cause_a_rollback() -> None:
    adapted = guarded()
    start = snapshot(adapted._innermost)
    set_weights(adapted, torch.full((2 * CLASSES,), math.nan))
    assert torch.equal(adapted(rows(8)), source(rows(8)))
    assert same(start, snapshot(adapted._innermost))
    assert counts(adapted) == (1, 8)


def test_only_the_first_rollback_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    adapted = guarded(GuardSettings(window=16, min_images=8, every=1, patience=16, rest=8))
    with caplog.at_level(logging.INFO, logger="realistic_tta"):
        for _ in range(3):
            collapse(adapted)
            adapted(rows(16))
            adapted(rows(8))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert "tent was worse than the source for 16 images" in caplog.text


def broken(count: int) -> Tensor:
    batch = rows(count)
    batch[1, 2] = math.nan
    return batch


@pytest.mark.parametrize("resting", [False, True])
def test_non_finite_samples_never_reach_the_guard(resting: bool) -> None:
    """With "raise" nothing changes; with "skip" the others are compared."""
    adapted = guarded(nonfinite="skip", nonfinite_output="nan")
    raising = guarded()
    for each in (adapted, raising):
        if resting:
            collapse(each)
            for _ in range(2):
                each(rows(16))
    outputs = adapted(broken(8))
    assert outputs[1].isnan().all()
    assert torch.equal(outputs[2:], source(rows(8))[2:])
    assert adapted.health().skipped == 1
    before = snapshot(raising)
    with pytest.raises(NonFiniteError):
        raising(broken(8))
    assert same(before, snapshot(raising))


def test_a_reset_ends_the_rest_and_keeps_the_counts() -> None:
    adapted = guarded()
    collapse(adapted)
    for _ in range(2):
        adapted(rows(16))
    assert torch.equal(adapted(rows(8)), source(rows(8)))
    adapted.reset()
    assert counts(adapted) == (1, 40)
    assert not torch.equal(adapted(rows(8)), source(rows(8)))


def test_copies_are_guarded_on_their_own() -> None:
    adapted = guarded(GuardSettings(window=16, min_images=8, every=1, patience=16))
    collapse(adapted)
    adapted(rows(8))
    for other in (copy.deepcopy(adapted), pickle.loads(pickle.dumps(adapted))):  # noqa: S301
        other(rows(8))
        assert other.health().rollbacks == 1
    assert adapted.health().rollbacks == 0


def test_a_file_continues_in_every_phase_of_a_guard(tmp_path: Path) -> None:
    """Saved after every batch: trusted, worse, rolled back, resting, trusted again."""
    adapted, phases = guarded(), set()
    for number in range(20):
        if number == 5:
            collapse(adapted)
        adapted.save(tmp_path / "state")
        other = load(tmp_path / "state", Rows().eval())
        batch, before = rows(8), counts(adapted)
        assert torch.equal(adapted(batch), other(batch))
        assert same(snapshot(adapted), snapshot(other))
        assert adapted.health() == other.health()
        phases.add(tuple(now > then for now, then in zip(counts(adapted), before, strict=True)))
    assert phases == {(False, False), (False, True), (True, True)}


def test_outputs_without_logits_pass_through() -> None:
    with on_cpu():
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    adapted = adapt(model, "tbn", guard=True)
    assert torch.equal(adapted(images(40)), adapt(model, "tbn")(images(40)))
    assert counts(adapted) == (0, 0)


def test_a_process_group_is_refused() -> None:
    with pytest.raises(OptionError, match="guard=True is not supported with process_group"):
        adapt(convolutional(), "tema", guard=True, process_group=object())
