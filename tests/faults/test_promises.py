"""What docs/reliability.md says of faults, on a short stream of the package's own photographs."""

from __future__ import annotations

import pytest

from realistic_tta.faults.table import Errors, errors
from realistic_tta.faults.trial import Trial, run


def measured(subject: str, fault: str = "none") -> Errors:
    """Of 384 images, a fifth of the middle third faulty."""
    trial = Trial(subject, fault, 0 if fault == "none" else 20, images=384)
    found = errors({trial: run(trial)}, subject, fault, 20)
    assert found is not None
    return found


def test_one_nan_pixel_now_and_then_ends_a_plain_program_and_costs_ours_next_to_nothing() -> None:
    usual = measured("tema+from_source")
    ours, plain = measured("tema+from_source", "nan"), measured("plain_tema", "nan")
    assert plain.after == 100
    assert abs(ours.during - usual.during) < 4
    assert abs(ours.after - usual.after) < 4


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("tbn", "scaled"),
        ("tema+from_source", "scaled"),
        ("rectified_tema+from_source", "scaled"),
        ("rectified_tema+from_source", "crafted_far"),
    ],
)
def test_robust_statistics_stand_what_ruins_the_plain_ones(method: str, fault: str) -> None:
    usual = measured(method)
    plain, robust = measured(method, fault), measured(f"{method}+robust", fault)
    assert plain.during > usual.during + 15
    assert robust.during < usual.during + 5
    assert robust.after < usual.after + 5


@pytest.mark.parametrize(
    "method", ["tbn", "tema+from_source", "rectified_tema+from_source", "realistic"]
)
def test_robust_statistics_cost_at_most_two_points_where_nothing_is_wrong(method: str) -> None:
    for plain, robust in zip(measured(method), measured(f"{method}+robust"), strict=True):
        assert abs(robust - plain) <= 2
