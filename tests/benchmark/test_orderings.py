"""Orderings against their definitions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realistic_tta.benchmark.orderings import (
    Indices,
    Loader,
    Part,
    choose,
    dirichlet_chunks,
    one_severity,
    sort_by_label,
    up_and_down,
)
from realistic_tta.benchmark.scenarios import SCENARIOS, StreamPlan
from realistic_tta.data.registry import CORRUPTIONS
from realistic_tta.errors import OptionError

LABELS = np.random.default_rng(0).integers(0, 10, 400)


def plan_of(scenario: str, **how: object) -> StreamPlan:
    return StreamPlan(scenario, **how)  # type: ignore[arg-type]


def loaders_of(plan: StreamPlan, labels: Indices = LABELS) -> list[Loader]:
    return plan.loaders(labels, len(SCENARIOS[plan.scenario].parts(CORRUPTIONS)))


def runs(labels: Indices) -> int:
    return 1 + int(np.count_nonzero(np.diff(labels)))


@pytest.mark.parametrize("images", [None, 7])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_image_comes_exactly_once_in_every_part(scenario: str, images: int | None) -> None:
    plan = plan_of(scenario, images=images)
    parts = SCENARIOS[scenario].parts(CORRUPTIONS)
    shown = Counter(
        (int(part), int(image))
        for loader in loaders_of(plan)
        for part, image in zip(loader.parts, loader.images, strict=True)
    )
    chosen = np.random.default_rng(1).permutation(len(LABELS))[:images]
    assert shown == Counter({(part, int(i)): 1 for part in range(len(parts)) for i in chosen})


@pytest.mark.parametrize("scenario", ["continual", "reset_each_shift", "episodic"])
def test_corruptions_come_in_the_order_of_the_tables_with_one_permutation(scenario: str) -> None:
    loaders = loaders_of(plan_of(scenario))
    assert [set(loader.parts.tolist()) for loader in loaders] == [{part} for part in range(15)]
    for loader in loaders:
        assert loader.images.tolist() == loaders[0].images.tolist()
    assert loaders[0].images.tolist() != sorted(loaders[0].images)


def test_file_order_is_the_order_of_the_file() -> None:
    for loader in loaders_of(plan_of("continual", order="file")):
        assert loader.images.tolist() == list(range(len(LABELS)))


def test_gradual_goes_up_and_down_through_the_severities() -> None:
    parts = up_and_down(CORRUPTIONS)
    assert len(parts) == 135
    for number, corruption in enumerate(CORRUPTIONS):
        nine = parts[9 * number : 9 * number + 9]
        assert {part.corruption for part in nine} == {corruption}
        assert [part.severity for part in nine] == [1, 2, 3, 4, 5, 4, 3, 2, 1]
    assert len(loaders_of(plan_of("gradual"))) == 135
    assert one_severity(CORRUPTIONS, 5) == tuple(part for part in parts if part.severity == 5)


def test_the_plan_chooses_the_severity_of_all_corruptions() -> None:
    parts = plan_of("mixed", severity=2).parts
    assert parts == one_severity(CORRUPTIONS, 2)
    assert {part.severity for part in parts} == {2}


@pytest.mark.parametrize("scenario", ["clean", "clean_correlated"])
def test_clean_streams_hold_the_clean_images_once(scenario: str) -> None:
    plan = plan_of(scenario)
    assert plan.parts == (Part("clean", 5),)
    assert len(plan.loaders(LABELS, len(plan.parts))) == 1


def test_mixed_is_uniform_over_the_corruptions_all_along() -> None:
    """In every tenth of the stream each corruption has its fifteenth, within chance."""
    (loader,) = loaders_of(plan_of("mixed"))
    for tenth in np.split(loader.parts, 10):
        counts = np.bincount(tenth, minlength=15)
        expected = len(tenth) / 15
        deviation = np.sqrt(expected * (14 / 15))
        assert np.abs(counts - expected).max() < 4.5 * deviation
    assert np.abs(np.corrcoef(loader.parts, loader.images)[0, 1]) < 0.05
    assert np.abs(np.corrcoef(loader.parts[1:], loader.parts[:-1])[0, 1]) < 0.05


@pytest.mark.parametrize(
    "scenario", ["correlated", "gradual_correlated", "mixed_correlated", "clean_correlated"]
)
def test_sorted_streams_show_each_class_in_one_run(scenario: str) -> None:
    for loader in loaders_of(plan_of(scenario)):
        assert runs(LABELS[loader.images]) == 10
    if scenario == "mixed_correlated":  # inside a run the corruptions still mix
        (loader,) = loaders_of(plan_of(scenario))
        first = loader.parts[LABELS[loader.images] == 0]
        assert runs(first) > 0.8 * len(first)


def test_smaller_delta_is_more_correlated() -> None:
    """Fewer runs; towards 0 a class stays in one chunk, towards infinity it is in all ten."""
    counts = [
        np.mean([runs(LABELS[dirichlet_chunks(LABELS, delta, seed)]) for seed in range(20)])
        for delta in (0.001, 0.1, 1.0, 1000.0)
    ]
    assert counts == sorted(counts)
    assert counts[0] < 12
    assert counts[-1] > 80


def test_streams_are_the_same_for_one_seed_and_others_for_another() -> None:
    for scenario in SCENARIOS:
        delta = 0.1 if SCENARIOS[scenario].correlated else None
        first, again, other = (
            [
                (loader.parts.tolist(), loader.images.tolist())
                for loader in loaders_of(plan_of(scenario, seed=seed, delta=delta))
            ]
            for seed in (1, 1, 2)
        )
        assert first == again
        assert first != other


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.floats(1e-4, 1e4), st.integers(0))
def test_chunks_lose_and_repeat_nothing(labels: list[int], delta: float, seed: int) -> None:
    order = dirichlet_chunks(np.array(labels), delta, seed)
    assert sorted(order) == list(range(len(labels)))
    assert sorted(sort_by_label(np.array(labels))) == list(range(len(labels)))


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(0))
def test_a_smaller_choice_is_the_same_images_in_both_orders(
    available: int, images: int, seed: int
) -> None:
    shuffled = choose(available, images, seed, shuffle=True)
    in_order = choose(available, images, seed, shuffle=False)
    assert sorted(shuffled) == in_order.tolist()
    assert len(in_order) == min(available, images)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"scenario": "continaul"}, 'unknown scenario "continaul"; did you mean "continual"?'),
        ({"order": "random"}, 'unknown order "random"'),
        ({"seed": -1}, "seed is -1; expected an integer of 0 or more"),
        ({"images": 0}, "images is 0; expected an integer of 1 or more"),
        ({"scenario": "mixed", "order": "file"}, 'order "file" is not supported'),
        ({"delta": 0.1}, "continual takes no delta; expected one of: correlated, mixed_correlated"),
        ({"scenario": "gradual", "severity": 1}, "gradual takes no severity"),
        ({"severity": 0}, "severity is 0; expected 1, 2, 3, 4 or 5"),
        ({"severity": 6}, "severity is 6; expected 1, 2, 3, 4 or 5"),
        ({"scenario": "correlated", "delta": 0}, "delta is 0; expected a number above 0"),
    ],
)
def test_plans_that_cannot_be_are_refused(how: dict[str, object], told: str) -> None:
    with pytest.raises(OptionError) as error:
        StreamPlan(**how)  # type: ignore[arg-type]
    assert told in str(error.value)


def test_more_images_than_there_are_is_refused() -> None:
    with pytest.raises(OptionError, match="images is 401; expected at most 400"):
        loaders_of(plan_of("continual", images=401))
