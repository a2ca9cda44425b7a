"""Traces: what the layers really did, the same after any kill, and nothing at all when off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bench_subjects import experiment, figures

from realistic_tta import METHODS, adapt
from realistic_tta.benchmark.datasets import open_stream
from realistic_tta.benchmark.experiment import Experiment
from realistic_tta.benchmark.metrics import POINTS, Metrics
from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.runner import evaluate, is_done, make_jobs
from realistic_tta.benchmark.traces import (
    Trace,
    TracePoint,
    read_trace,
    trace_file,
    write_trace,
)
from realistic_tta.errors import ResultsError
from realistic_tta.models.checkpoints import load_model

TRACE = Trace(
    key="a",
    layers=("bn1", "bn2"),
    points=(
        TracePoint(4, (0.0, 0.5), (1.5, 2.5)),
        TracePoint(8, (0.1, None), (None, 3.0)),
    ),
)


def traced(chosen: Experiment, folder: Path) -> Trace:
    (job,) = make_jobs([chosen], folder, traces=True)
    evaluate(job, folder)
    found = read_trace(job.key, folder)
    assert found is not None
    return found


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    write_trace(TRACE, tmp_path)
    assert read_trace("a", tmp_path) == TRACE
    assert read_trace("b", tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"points": [[1]], "layers": []}'])
def test_what_is_no_trace_is_refused_by_its_name(text: str, tmp_path: Path) -> None:
    write_trace(TRACE, tmp_path)
    trace_file("a", tmp_path).write_text(text)
    with pytest.raises(ResultsError, match=r"traces/a\.json is not a trace"):
        read_trace("a", tmp_path)


@pytest.mark.usefixtures("world")
def test_layers_are_traced_as_the_report_shows_them(tmp_path: Path) -> None:
    chosen = experiment("rectified_tema", images=4)
    trace = traced(chosen, tmp_path)
    adapted = adapt(load_model("tiny"), "rectified_tema")
    stream = open_stream("cifar10-c", chosen.plan, tmp_path)
    for point, batch in zip(trace.points, stream.batches(4), strict=True):
        adapted(batch.images)
        layers = adapted.report().layers
        assert trace.layers == tuple(layer.name for layer in layers)
        weights, gaps = zip(
            *((each.source_weight, each.divergence) for each in layers), strict=True
        )
        assert point.source_weight == pytest.approx(weights, rel=1e-5)
        assert point.divergence == pytest.approx(gaps, rel=1e-5)
    assert [point.images for point in trace.points] == list(range(4, 61, 4))


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_traced_with_the_same_figures(method: str, tmp_path: Path) -> None:
    chosen = experiment(method, images=2, batch_size=2)
    (job,) = make_jobs([chosen], tmp_path)
    plain = evaluate(job, tmp_path)
    assert not trace_file(job.key, tmp_path).exists()
    (watched,) = make_jobs([chosen], tmp_path, traces=True)
    assert figures(evaluate(watched, tmp_path)) == figures(plain)
    trace = read_trace(job.key, tmp_path)
    assert trace is not None
    assert len(trace.points) == 15
    assert all(len(point.divergence) == len(trace.layers) for point in trace.points)


class PowerCutError(Exception):
    """Ends a run in the middle."""


def cut_at(stop: int) -> Any:
    def cut(metrics: Metrics) -> None:
        if metrics.batches == stop:
            raise PowerCutError

    return cut


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("scenario", ["continual", "reset_each_shift"])
def test_a_trace_is_the_same_after_kills(scenario: str, tmp_path: Path) -> None:
    chosen = experiment("rectified_tema", scenario, images=5, batch_size=3)
    whole = traced(chosen, tmp_path / "whole")
    (job,) = make_jobs([chosen], tmp_path, traces=True)
    for stop in (5, 6, 20):
        with pytest.raises(PowerCutError):
            evaluate(job, tmp_path, cut_at(stop), save_every=0)
    assert read_trace(job.key, tmp_path) is None
    assert evaluate(job, tmp_path, save_every=0).resumed == 3
    assert read_trace(job.key, tmp_path) == whole


@pytest.mark.usefixtures("world")
def test_a_run_begun_without_a_trace_is_begun_anew_with_one(tmp_path: Path) -> None:
    chosen = experiment("tema", images=2)
    (plain,) = make_jobs([chosen], tmp_path)
    with pytest.raises(PowerCutError):
        evaluate(plain, tmp_path, cut_at(6), save_every=0)
    (watched,) = make_jobs([chosen], tmp_path, traces=True)
    record = evaluate(watched, tmp_path, save_every=0)
    assert record.resumed == 0
    trace = read_trace(record.key, tmp_path)
    assert trace is not None
    assert len(trace.points) == len(record.error_curve) == 15


@pytest.mark.usefixtures("world")
def test_a_record_without_its_trace_is_not_done_if_a_trace_is_wanted(tmp_path: Path) -> None:
    results = Results(tmp_path)
    plain, watched = (
        make_jobs([experiment("tema", images=2)], tmp_path, traces=traces)[0]
        for traces in (False, True)
    )
    assert plain.key == watched.key
    results.write(evaluate(plain, tmp_path))
    assert is_done(plain, results)
    assert not is_done(watched, results)
    evaluate(watched, tmp_path)
    assert is_done(watched, results)


def test_a_trace_has_at_most_two_hundred_points_however_long_the_stream(tmp_path: Path) -> None:
    """And weighs less than half a MB for a model of a hundred layers."""
    assert POINTS == 200
    layers = tuple(f"layer4.0.block{number}.bn1" for number in range(100))
    row = tuple(float(f"{value:.6g}") for value in torch.rand(100).tolist())
    point = TracePoint(123_456, row, row)
    write_trace(Trace("big", layers, (point,) * POINTS), tmp_path)
    assert trace_file("big", tmp_path).stat().st_size < 500_000
