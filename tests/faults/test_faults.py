"""The trials of `rtta faults`: what is sent, what is counted, and what is kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from subjects import convolutional, images, same, snapshot
from torch import nn

import realistic_tta
from realistic_tta import METHODS
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.errors import ResultsError, SettingError
from realistic_tta.faults import engine, trial
from realistic_tta.faults.crafted import (
    crafted,
    crafted_to_be_trusted,
    divergence,
    pull,
    trusted_divergence,
)
from realistic_tta.faults.engine import run_all, trials
from realistic_tta.faults.plain import PLAIN
from realistic_tta.faults.samples import FAULTS
from realistic_tta.faults.store import path_of, read, write
from realistic_tta.faults.table import errors, table
from realistic_tta.faults.trial import Outcome, Trial, class_of, run, stream, subject
from realistic_tta.models.checkpoints import load_model

GOOD = Trial("source", "none", 0, images=60, batch_size=8)


def with_fault(fault: str, share: float = 20, method: str = "source") -> Trial:
    return dataclasses.replace(GOOD, fault=fault, share=share, subject=method)


def made(fault: str, count: int = 6) -> torch.Tensor:
    return FAULTS[fault](images(count), convolutional(), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("fault", FAULTS)
def test_only_the_chosen_places_of_the_middle_third_are_replaced(fault: str) -> None:
    faulty = with_fault(fault)
    (expected, labels), (found, same_labels) = stream(GOOD), stream(faulty)
    differs = [place for place in range(60) if not torch.equal(expected[place], found[place])]
    assert torch.equal(labels, same_labels)
    assert len(faulty.faulty()) == 4  # a fifth of 20
    assert set(faulty.faulty()) <= set(range(20, 40))
    stuck = faulty.faulty()[:1] if fault == "stuck" else []  # the frame that is repeated
    assert differs == [place for place in faulty.faulty() if place not in stuck]


def test_a_small_share_is_part_of_a_larger_one() -> None:
    large = set(GOOD.faulty(50))
    assert len(large) == 10
    assert set(GOOD.faulty(20)) < large
    assert with_fault("blank", 50).faulty() == sorted(large)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_same_trial_sends_the_same_images(fault: str) -> None:
    first, second = stream(with_fault(fault))[0], stream(with_fault(fault))[0]
    assert torch.equal(first.nan_to_num(-1), second.nan_to_num(-1))


def test_the_faults_are_what_their_names_say() -> None:
    good = images(6)
    assert made("nan").isnan().flatten(1).sum(dim=1).tolist() == [1] * 6
    assert torch.equal(made("stuck"), good[:1].expand_as(good))
    assert set(made("blank").unique().tolist()) == {0.0}
    assert set(made("saturated").unique().tolist()) == {1.0}
    assert torch.equal(made("scaled"), good * 1000)
    assert made("noise").std() == pytest.approx(12**-0.5, rel=0.05)
    assert made("crafted").min() >= 0
    assert made("crafted").max() <= 1
    assert made("crafted_far").abs().max() <= 10


@pytest.mark.parametrize("reach", [1.0, 10.0])
def test_crafted_images_pull_further_than_the_noise_they_are_made_from(reach: float) -> None:
    network, generator = convolutional(), torch.Generator().manual_seed(0)
    noise = -reach + 2 * reach * torch.rand(8, 3, 12, 12, generator=generator)
    found = crafted(images(8), network, generator.manual_seed(0), low=-reach, high=reach)
    assert pull(found, network) > pull(noise, network) + 1
    assert not any(layer._forward_pre_hooks for layer in network.modules())


def test_images_crafted_to_be_trusted_move_what_robust_statistics_see() -> None:
    network, generator = load_model("cifar10"), torch.Generator().manual_seed(0)
    good = torch.from_numpy(load_sample().images[:8]).permute(0, 3, 1, 2).float() / 255
    found = crafted_to_be_trusted(good, network, generator)
    chosen = good[torch.randint(8, (8,), generator=generator.manual_seed(0))]
    assert found.min() >= good.min()
    assert found.max() <= good.max()
    for distance in (divergence, trusted_divergence):
        assert pull(found, network, distance) > pull(chosen, network, distance) + 10


@pytest.mark.parametrize("name", ["tbn", "tema", "tent"])
def test_plain_methods_are_ours_while_nothing_is_wrong(name: str) -> None:
    network = convolutional(classes=10)
    plain, ours = PLAIN[f"plain_{name}"](network), realistic_tta.adapt(network, name)
    for seed in range(3):
        batch = images(16, seed)
        torch.testing.assert_close(plain(batch), ours(batch), rtol=1e-3, atol=1e-4)


def test_medians_are_those_of_a_loop_over_channels() -> None:
    layer = nn.BatchNorm2d(3, affine=False).eval()
    batch = images(5)
    found = PLAIN["plain_medbn"](layer)(batch)
    for channel in range(3):
        values = batch[:, channel].flatten(1)
        centre = values.mean(dim=1).sort().values[2]
        spread = (values - centre).square().mean(dim=1).sort().values[2]
        expected = (batch[:, channel] - centre) / (spread + layer.eps).sqrt()
        torch.testing.assert_close(found[:, channel], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_methods_leave_the_network_as_it_was(name: str) -> None:
    network = convolutional(classes=10)
    before = snapshot(network)
    PLAIN[name](network)(images(4))
    assert same(before, snapshot(network))


def test_one_nan_pixel_ends_a_plain_tema_for_ever_and_ours_goes_on() -> None:
    network = convolutional(classes=10)
    plain, ours = PLAIN["plain_tema"](network), realistic_tta.adapt(network, "tema")
    faulty = images(16)
    faulty[3, 0, 0, 0] = torch.nan
    for method in (plain, ours):
        method(faulty)
    assert plain(images(16, seed=1)).isnan().all()
    assert torch.isfinite(ours(images(16, seed=1))).all()


def test_logits_with_nan_are_no_prediction() -> None:
    logits = torch.tensor([[0.0, 1.0], [torch.nan, 1.0], [2.0, 1.0]])
    assert class_of(logits).tolist() == [1, -1, 0]


def test_wrong_are_the_good_samples_that_the_network_errs_on() -> None:
    batch, labels = stream(GOOD)
    with torch.no_grad():
        logits = trial._network()(batch)
    wrong = (logits.argmax(dim=1) != labels).nonzero().flatten().tolist()
    assert run(GOOD).wrong == wrong
    blank = with_fault("blank")
    assert run(blank).wrong == [place for place in wrong if place not in blank.faulty()]
    assert run(with_fault("nan")).excluded == 4


def test_a_batch_that_is_refused_is_wrong_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Trial) -> object:
        def predict(batch: torch.Tensor) -> torch.Tensor:
            raise realistic_tta.InputError(f"{len(batch)} images are too many")

        return predict

    monkeypatch.setattr(trial, "subject", refuse)
    assert run(GOOD).wrong == list(range(60))
    assert run(GOOD).refused == 8


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_the_catalogue_can_be_put_to_the_test(method: str) -> None:
    assert callable(subject(with_fault("blank", method=method)))


def test_options_behind_a_name_reach_the_method() -> None:
    found = subject(with_fault("blank", method="tema+robust+guard+from_source"))
    assert isinstance(found, realistic_tta.AdaptedModel)
    assert found.settings.robust
    assert found.settings.start == "source"
    assert found.guard is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"subject": "tmea"}, 'did you mean "tema"'),
        ({"subject": "tema+robus"}, 'did you mean "robust"'),
        ({"fault": "blanc"}, 'did you mean "blank"'),
        ({"share": 101}, "share is 101"),
        ({"images": 2001}, "images is 2001"),
        ({"batch_size": 0}, "batch size is 0"),
        ({"corruption": "fgo"}, 'did you mean "fog"'),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        dataclasses.replace(GOOD, **change)  # type: ignore[arg-type]


def test_an_outcome_comes_back_from_its_file(tmp_path: Path) -> None:
    assert read(GOOD, tmp_path) is None
    outcome = Outcome([1, 5, 59], 0, 3, 0.25)
    write(GOOD, outcome, tmp_path)
    assert read(GOOD, tmp_path) == outcome
    assert read(with_fault("blank"), tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"wrong": [60], "refused": 0, "excluded": 0, "seconds": 1}',
        '{"wrong": ["a"], "refused": 0, "excluded": 0, "seconds": 1}',
        '{"wrong": [], "refused": "0", "excluded": 0, "seconds": 1}',
        '{"wrong": [], "refused": 0, "excluded": 0, "seconds": null}',
    ],
)
def test_a_file_that_is_no_outcome_is_refused(text: str, tmp_path: Path) -> None:
    path = path_of(GOOD, tmp_path)
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ResultsError, match="remove it"):
        read(GOOD, tmp_path)


def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every subject runs once without a fault."""
    ran: list[Trial] = []

    def note(each: Trial) -> Outcome:
        ran.append(each)
        return Outcome([], 0, 0, 0.0)

    monkeypatch.setattr(engine, "run", note)
    wanted = trials(
        ["tbn", "tema"], ["blank", "nan"], [1, 20], ["fog"], [1, 2], images=60, batch_size=8
    )
    assert len(wanted) == len(set(wanted)) == 2 * (1 + 2 * 2) * 2
    running = run_all(wanted, tmp_path, workers=1)
    done = [next(running), next(running)]
    del running
    assert list(run_all(wanted, tmp_path, workers=1)) == wanted[2:]
    assert [*done, *wanted[2:]] == ran == wanted


def test_errors_are_counted_on_good_samples_and_pooled_over_streams() -> None:
    """Ten of twenty wrong before, in one of two streams; a faulty place never counts."""
    first = with_fault("blank", 50)
    second = dataclasses.replace(first, seed=2)
    good = [place for place in range(20, 40) if place not in first.faulty()]
    outcomes = {
        first: Outcome([*range(10), *good[:5], 40], 0, 0, 1.0),
        second: Outcome([], 0, 0, 1.0),
    }
    found = errors(outcomes, "source", "blank", 50)
    assert found == (100 * 10 / 40, 100 * 5 / 20, 100 * 1 / 40)
    assert errors(outcomes, "source", "nan", 50) is None


def test_without_a_fault_the_same_samples_count() -> None:
    left_out = GOOD.faulty(50)
    outcomes = {GOOD: Outcome([*left_out, 59], 0, 0, 1.0)}
    assert errors(outcomes, "source", "none", 50) == (0.0, 0.0, 100 * 1 / 20)


def test_the_table_has_a_row_a_method_and_a_column_a_fault() -> None:
    outcomes = {
        GOOD: Outcome([0, 59], 0, 0, 1.0),
        with_fault("crafted_far"): Outcome([0, 58, 59], 0, 0, 1.0),
    }
    assert table(outcomes, ["source", "tema+robust"], ["crafted_far"], 20) == [
        "| method | before | no fault | crafted far |",
        "| --- | --- | --- | --- |",
        "| source | 5.0 | 0.0 / 5.0 | 0.0 / 10.0 |",
        "| tema, robust | - | - | - |",
    ]
