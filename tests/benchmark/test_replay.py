"""A replayed experiment has the figures of one that was run batch by batch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench_subjects import experiment, figures

from realistic_tta.benchmark.metrics import Tally
from realistic_tta.benchmark.replay import TOGETHER, chunks
from realistic_tta.benchmark.replayable import with_replay
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.benchmark.runner import Job, evaluate, make_jobs
from realistic_tta.benchmark.stream import StreamBatch
from realistic_tta.cli.main import main

METHODS = ("source", "tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema")


def both(folder: Path, *asked: Any, **how: Any) -> tuple[Record, Record]:
    """Batch by batch, and replayed."""
    jobs = make_jobs([experiment(*asked, **how)], folder)
    (replayed,), _ = with_replay(jobs, folder)
    assert replayed.replay
    return evaluate(jobs[0], folder), evaluate(replayed, folder)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, 4])
def test_the_figures_are_those_of_a_run_batch_by_batch(
    method: str, size: int, tmp_path: Path
) -> None:
    """Chunks reach over corruptions, whose last batches are smaller: 10 images in fours."""
    plain, replayed = both(tmp_path, method, batch_size=size)
    assert figures(replayed) == figures(plain)
    assert (plain.replay, replayed.replay) == (False, True)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("setting", ["reset_each_shift", "mixed", "gradual_correlated"])
def test_resets_and_mixed_domains_are_replayed(setting: str, tmp_path: Path) -> None:
    plain, replayed = both(tmp_path, "rectified_tema", setting, batch_size=3)
    assert figures(replayed) == figures(plain)


@pytest.mark.usefixtures("world")
def test_one_pass_and_a_fixed_momentum_are_replayed(tmp_path: Path) -> None:
    chosen = {"passes": 1, "momentum": 0.2, "start": "source"}
    plain, replayed = both(tmp_path, "rectified_tema", settings=chosen)
    assert figures(replayed) == figures(plain)


@pytest.mark.usefixtures("world")
def test_a_record_says_that_its_times_are_of_the_replay(tmp_path: Path) -> None:
    plain, replayed = both(tmp_path, "tema")
    assert plain.cost is not None
    assert replayed.cost is None
    assert replayed.method_seconds is not None
    assert replayed.seconds is not None
    assert 0 < replayed.method_seconds < replayed.seconds
    assert Record.from_json(replayed.to_json()) == replayed


class PowerCutError(Exception):
    """Ends a run in the middle."""


@pytest.mark.usefixtures("world")
def test_a_replay_goes_on_inside_and_so_does_a_run_batch_by_batch(tmp_path: Path) -> None:
    """In turns: each begins where the other was stopped."""
    jobs = make_jobs([experiment("rectified_tema", batch_size=1)], tmp_path)
    (replayed,), _ = with_replay(jobs, tmp_path)
    whole = evaluate(jobs[0], tmp_path / "whole")
    for job, stop in ((replayed, TOGETHER + 1), (jobs[0], 100)):

        def cut(tally: Tally, stop: int = stop) -> None:
            if tally.batches >= stop:
                raise PowerCutError

        with pytest.raises(PowerCutError):
            evaluate(job, tmp_path / "cut", cut, save_every=0)
    resumed = evaluate(replayed, tmp_path / "cut", save_every=0)
    assert figures(resumed) == figures(whole)
    assert resumed.replay
    assert resumed.cost is None
    assert resumed.resumed == 2


@pytest.mark.usefixtures("world")
def test_what_cannot_be_replayed_is_run_as_usual_and_told(tmp_path: Path) -> None:
    asked = [
        experiment("tema"),
        experiment("tent"),
        experiment("tema", "episodic"),
        experiment("tema", batch_size=TOGETHER // 2 + 1),
        experiment("rectified_tema", settings={"second_pass": "when_needed"}),
    ]
    jobs, reasons = with_replay(make_jobs(asked, tmp_path), tmp_path)
    assert [job.replay for job in jobs] == [True, False, False, False, False]
    assert sum(reasons.values()) == 4
    told = "; ".join(reasons)
    assert "tent is none of source, tbn" in told
    assert "episodic resets before each batch" in told
    assert "more than 32 images" in told
    watched, _ = with_replay(make_jobs(asked[:1], tmp_path, traces=True), tmp_path)
    assert not watched[0].replay


@pytest.mark.usefixtures("world")
def test_a_replay_is_the_same_job(tmp_path: Path) -> None:
    """So what was done batch by batch is not done again."""
    (job,) = make_jobs([experiment()], tmp_path)
    assert dataclasses.replace(job, replay=True).key == job.key
    assert isinstance(job, Job)


@pytest.mark.usefixtures("world")
def test_the_command_replays_and_says_what_it_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "--network", "cifar10", "--images", "2", "--batch-sizes", "1"]
    words += ["--methods", "source,lame", "--workers", "1", "--out", str(tmp_path), "--replay"]
    assert main(words) == 0
    assert "1 of 2 experiments are run batch by batch: lame is none of" in capsys.readouterr().out
    found = {each.method: each.replay for each in Results(tmp_path).read()}
    assert found == {"source": True, "lame": False}


def batch(number: int, images: int, *, reset: bool = False) -> StreamBatch:
    zeros = torch.zeros(images)
    return StreamBatch(number, zeros, zeros, np.zeros(images, np.int64), reset)


def numbers(batches: list[StreamBatch], images: int) -> list[list[int]]:
    return [[each.number for each in chunk] for chunk in chunks(batches, images)]


def test_batches_go_together_up_to_a_number_of_images_and_a_reset() -> None:
    few = [batch(0, 2, reset=True), batch(1, 2), batch(2, 1), batch(3, 2, reset=True), batch(4, 9)]
    assert numbers(few, 0) == [[0], [1], [2], [3], [4]]
    assert numbers(few, 4) == [[0, 1], [2], [3], [4]]
    assert numbers(few, 5) == [[0, 1, 2], [3], [4]]
    assert numbers(few, 100) == [[0, 1, 2], [3, 4]]
    assert numbers([], 4) == []
