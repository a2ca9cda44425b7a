"""Many experiments at once: workers that die, methods that fail, records that stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_subjects import (
    dies_twice,
    evaluate_tiny,
    experiment,
    figures,
    misbehaves,
)

from realistic_tta.benchmark.engines import run_local
from realistic_tta.benchmark.events import Died, Finished, Progress, Started
from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.runner import evaluate, make_jobs

pytestmark = pytest.mark.usefixtures("world")


def test_every_experiment_ends_in_a_record_equal_to_a_run_of_its_own(tmp_path: Path) -> None:
    jobs = make_jobs([experiment(name, images=3) for name in ("source", "tbn", "tema")], tmp_path)
    events = list(run_local(jobs, tmp_path, 2, evaluate=evaluate_tiny))
    assert {event.job for event in events if isinstance(event, Started)} == set(jobs)
    records = {record.key: record for record in Results(tmp_path).read()}
    for job in jobs:
        assert figures(records[job.key]) == figures(evaluate(job, tmp_path / "alone"))
    assert list(run_local(jobs, tmp_path, 2, evaluate=evaluate_tiny)) == [], (
        "finished experiments ran again"
    )


def test_a_worker_that_is_killed_has_its_experiment_run_on(tmp_path: Path) -> None:
    """Twice in the middle; the third run goes on from the second's state."""
    (job,) = make_jobs([experiment("rectified_tema")], tmp_path)
    events = list(run_local([job], tmp_path, 1, save_every=0, evaluate=dies_twice))
    deaths = [event.reason for event in events if isinstance(event, Died)]
    assert deaths == 2 * ["exit code -9 (killed, perhaps out of memory)"]
    (record,) = Results(tmp_path).read()
    assert record.resumed == 2
    assert figures(record) == figures(evaluate(job, tmp_path / "alone"))
    assert any(isinstance(event, Progress) for event in events)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_what_fails_or_kills_its_worker_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    """An error of the method is final at once, a death after the third."""
    jobs = make_jobs([experiment(name, images=2) for name in ("tbn", "source", "tema")], tmp_path)
    events = list(run_local(jobs, tmp_path, 1, evaluate=misbehaves))
    ends = {e.job.experiment.method: e.record.status for e in events if isinstance(e, Finished)}
    assert ends == {"tbn": "failed", "source": "failed", "tema": "done"}
    assert len([event for event in events if isinstance(event, Died)]) == 2
    messages = {each.method: each.message for each in Results(tmp_path).read(status="failed")}
    assert messages["tbn"] == "RuntimeError: tbn is not well today"
    assert "ended 3 times unexpectedly, last with exit code 3" in str(messages["source"])
    again = list(run_local(jobs, tmp_path, 2, evaluate=evaluate_tiny))
    ran = {event.record.method for event in again if isinstance(event, Finished)}
    assert ran == {"tbn", "source"}, "only what failed is run again"
    assert {record.status for record in Results(tmp_path).read()} == {"done"}


def test_closing_the_events_ends_the_workers(tmp_path: Path) -> None:
    import multiprocessing

    (job,) = make_jobs([experiment(batch_size=1)], tmp_path)
    events = run_local([job], tmp_path, 1, evaluate=evaluate_tiny)
    next(events)
    assert multiprocessing.active_children()
    events.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()
