"""One experiment: counted right, nothing told, and the same after any number of kills."""

from __future__ import annotations

import random
import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench_subjects import Guess, Oracle, evaluate_by_word, experiment, figures, write_world

from realistic_tta import METHODS, adapt
from realistic_tta.benchmark.checkpoints import checkpoint_file
from realistic_tta.benchmark.datasets import open_stream
from realistic_tta.benchmark.environment import versions
from realistic_tta.benchmark.metrics import POINTS, Metrics
from realistic_tta.benchmark.runner import adapt_for, evaluate, make_jobs
from realistic_tta.benchmark.scenarios import SCENARIOS
from realistic_tta.core.adapted_model import Prediction
from realistic_tta.core.batch import Batch
from realistic_tta.data.registry import CORRUPTIONS
from realistic_tta.errors import ModelError
from realistic_tta.methods.source import SourceModel
from realistic_tta.models.checkpoints import load_model
from realistic_tta.storage import model_hash


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    for stub in (Oracle, Guess):
        monkeypatch.setitem(METHODS, stub.name, stub)


@pytest.mark.usefixtures("world", "stubs")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_method_that_is_always_right_has_no_error(scenario: str, tmp_path: Path) -> None:
    (job,) = make_jobs([experiment("oracle", scenario)], tmp_path)
    record = evaluate(job, tmp_path)
    assert record.error == 0
    assert {part.wrong for part in record.parts} == {0}
    assert {part.images for part in record.parts} == {10}
    named = [(part.corruption, part.severity) for part in record.parts]
    assert named == list(SCENARIOS[scenario].parts(CORRUPTIONS))


@pytest.mark.usefixtures("world", "stubs")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_method_that_guesses_is_at_chance(scenario: str, tmp_path: Path) -> None:
    (job,) = make_jobs([experiment("guess", scenario)], tmp_path)
    record = evaluate(job, tmp_path)
    shown = sum(part.images for part in record.parts)
    assert record.error is not None
    assert abs(record.error - 90) < 4 * 30 / np.sqrt(shown)  # 30: deviation of one guess


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("scenario", ["continual", "reset_each_shift", "episodic", "mixed"])
def test_the_counts_are_those_of_a_plain_loop(scenario: str, tmp_path: Path) -> None:
    chosen = experiment("rectified_tema", scenario, images=7)
    (job,) = make_jobs([chosen], tmp_path)
    record = evaluate(job, tmp_path)
    adapted = adapt(load_model("tiny"), "rectified_tema")
    images = dict.fromkeys(range(15), 0)
    wrong = dict.fromkeys(range(15), 0)
    for batch in open_stream("cifar10-c", chosen.plan, tmp_path).batches(4):
        if batch.reset:
            adapted = adapt(load_model("tiny"), "rectified_tema")
        predicted = adapted(batch.images).argmax(1)
        for part, label, guess in zip(batch.parts, batch.labels, predicted, strict=True):
            images[int(part)] += 1
            wrong[int(part)] += int(label != guess)
    assert [part.images for part in record.parts] == list(images.values())
    assert [part.wrong for part in record.parts] == list(wrong.values())
    assert record.error == pytest.approx(100 * sum(wrong.values()) / (15 * 7))


class Listener(SourceModel):
    """Keeps what it is called with."""

    name = "listener"
    heard: list[tuple[tuple[Any, ...], dict[str, Any]]] = []  # noqa: RUF012 - read by the test

    def _predict(self, batch: Batch) -> Prediction:
        self.heard.append((batch.args, dict(batch.kwargs)))
        return super()._predict(batch)


@pytest.mark.usefixtures("world")
def test_a_method_is_given_images_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "listener", Listener)
    (job,) = make_jobs([experiment("listener", images=2)], tmp_path)
    evaluate(job, tmp_path)
    assert len(Listener.heard) == 15
    for args, kwargs in Listener.heard:
        assert not kwargs
        (images,) = args
        assert type(images) is torch.Tensor
        assert images.shape == (2, 3, 32, 32)
        assert not vars(images)


@pytest.mark.usefixtures("world")
def test_a_record_says_what_it_cost_and_what_ran(tmp_path: Path) -> None:
    (job,) = make_jobs([experiment("rectified_tema", batch_size=1)], tmp_path)
    record = evaluate(job, tmp_path)
    assert record.cost is not None
    assert record.cost > 1
    assert record.seconds is not None
    assert record.method_seconds is not None
    assert 0 < record.method_seconds < record.seconds
    assert record.peak_memory is not None
    assert 50 < record.peak_memory < 20_000
    assert record.torch == torch.__version__
    assert record.device == "cpu"
    assert record.key == job.key
    assert len(record.error_curve) == 150
    seen = [images for images, _ in record.error_curve]
    assert seen == list(range(1, 151))
    mean = sum(error for _, error in record.error_curve) / 150
    assert mean == pytest.approx(record.error)


@pytest.mark.parametrize("batches", [1, 2, 7, 199, 200, 201, 1000, 4321])
def test_the_course_has_at_most_two_hundred_points_and_covers_the_stream(batches: int) -> None:
    metrics, flags = (
        Metrics.start(batches, 2),
        np.random.default_rng(0).integers(0, 2, (batches, 3)),
    )
    for row in flags:
        metrics.count([0, 1, 0], [bool(flag) for flag in row])
    assert min(batches, POINTS // 2) <= len(metrics.error_curve) <= POINTS
    assert metrics.error_curve[-1][0] == 3 * batches
    steps = np.diff([0, *(seen for seen, _ in metrics.error_curve)])
    wrong = sum(
        step * error / 100 for step, (_, error) in zip(steps, metrics.error_curve, strict=True)
    )
    assert wrong == pytest.approx(flags.sum())
    assert metrics.images == [2 * batches, batches]
    assert metrics.wrong == [flags[:, [0, 2]].sum(), flags[:, 1].sum()]
    timed = [number for number in range(batches) if metrics.is_timed(number)]
    assert len(timed) <= max(5, batches / 30)
    assert (len(timed) >= min(3, batches - 1)) or batches < 3


@pytest.mark.usefixtures("world")
def test_hyperparameters_seeds_and_the_training_batch_reach_adapt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each method gets only what it takes."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("realistic_tta.benchmark.runner.adapt", lambda *_, **how: given.update(how))
    adapt_for(experiment(hyperparameters={"momentum": 0.3}), load_model("tiny"))
    assert given["momentum"] == 0.3
    assert given["source_batch_size"] == 128
    for name, method in METHODS.items():
        given.clear()
        adapt_for(experiment(name, seed=7), load_model("tiny"))
        taken = method.settings_type.__dataclass_fields__
        assert given.get("seed") == (7 if "seed" in taken else None)
        assert ("source_batch_size" in given) == ("source_batch_size" in taken)


@pytest.mark.usefixtures("world")
def test_other_weights_are_another_job_of_the_same_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = make_jobs([experiment()], tmp_path)
    write_world(tmp_path / "other", images=10)
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "other"))
    (same,) = make_jobs([experiment()], tmp_path)
    assert same == first
    model = load_model("tiny")
    before = model_hash(model)
    next(model.parameters()).data.view(-1)[0] += 1e-3
    assert model_hash(model) != before
    (tmp_path / "other" / "models" / "tiny.safetensors").write_bytes(b"")
    with pytest.raises(ModelError):
        make_jobs([experiment()], tmp_path)


class PowerCutError(Exception):
    """Ends a run in the middle."""


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("method", "scenario"),
    [(method, "reset_each_shift") for method in METHODS]
    + [("rectified_tema", scenario) for scenario in ("continual", "mixed", "episodic")],
)
def test_a_run_goes_on_inside_and_ends_with_the_same_figures(
    method: str, scenario: str, tmp_path: Path
) -> None:
    """Stopped at several batches, each time after a state older than the stop was saved."""
    (job,) = make_jobs([experiment(method, scenario, images=5, batch_size=3)], tmp_path)
    whole = evaluate(job, tmp_path / "whole")
    for stop in (1, 5, 6, 20):

        def cut(metrics: Metrics, stop: int = stop) -> None:
            if metrics.batches == stop:
                raise PowerCutError

        with pytest.raises(PowerCutError):
            evaluate(job, tmp_path / "cut", cut, save_every=0)
    resumed = evaluate(job, tmp_path / "cut", save_every=0)
    assert figures(resumed) == figures(whole)
    assert resumed.resumed == 3  # nothing was saved before the first batch
    assert checkpoint_file(job.key, tmp_path / "cut").exists()


@pytest.mark.usefixtures("world")
def test_what_another_version_has_begun_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = make_jobs([experiment(images=2)], tmp_path)
    evaluate(job, tmp_path, save_every=0)
    assert evaluate(job, tmp_path).resumed == 1
    older = {**versions(), "torch": "2.0.0"}
    monkeypatch.setattr("realistic_tta.benchmark.checkpoints.versions", lambda: older)
    assert evaluate(job, tmp_path).resumed == 0


def test_killed_ten_times_at_random_moments_it_ends_as_if_nothing_had_been(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL, in real processes: in the middle of a save, of a batch, or between the two.

    The processes are copies of one that has imported torch already, which alone takes seconds.
    """
    chosen = experiment("rectified_tema", "reset_each_shift", batch_size=1)
    (job,) = make_jobs([chosen], tmp_path)
    whole = evaluate(job, tmp_path / "whole")
    chance, kills = random.Random(0), 10  # noqa: S311 - moments to kill at
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))  # else the import is given up in silence
    context = get_context("forkserver")
    context.set_forkserver_preload(["bench_subjects"])
    reached = 0
    for _ in range(kills):
        pipe, theirs = context.Pipe()
        process = context.Process(target=evaluate_by_word, args=(theirs, world, job, tmp_path))
        process.start()
        begun = pipe.recv()
        assert begun == 1 or reached - 1 <= begun <= reached + 1, "it did not go on where it was"
        for _ in range(chance.randrange(2, 12)):
            pipe.send("go on")
            reached = pipe.recv()
        pipe.send("go on")
        time.sleep(chance.random() / 100)  # it saves, and predicts the next batch
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert reached > 40
    resumed = evaluate(job, tmp_path)
    assert figures(resumed) == figures(whole)
    assert resumed.resumed == kills
