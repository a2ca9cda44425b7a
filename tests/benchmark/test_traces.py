"""Traces: what the layers really did, the same after any kill, and nothing at all when off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bench_subjects import experiment, figures
from torch import Tensor

from realistic_tta import METHODS, adapt
from realistic_tta.benchmark.data import open_stream
from realistic_tta.benchmark.experiment import Experiment
from realistic_tta.benchmark.metrics import POINTS, Tally
from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.runner import evaluate, is_done, make_jobs
from realistic_tta.benchmark.trace_files import (
    Trace,
    TracePoint,
    read_trace,
    trace_file,
    write_trace,
)
from realistic_tta.benchmark.traces import finished_trace, trace_point
from realistic_tta.errors import ResultsError
from realistic_tta.functional.momentum import choose_momentum
from realistic_tta.models.checkpoints import load_model

TRACE = Trace(
    key="a",
    layer="bn2",
    channel=3,
    source_mean=0.5,
    layers=("bn1", "bn2"),
    points=(
        TracePoint(4, 0.25, (0.0, 0.5), (1.5, 2.5)),
        TracePoint(8, None, (0.1, None), (None, 3.0)),
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
    with pytest.raises(ResultsError, match=r"traces/a\.json: no trace"):
        read_trace("a", tmp_path)


def last_inputs(chosen: Experiment, folder: Path) -> tuple[Tensor, list[Tensor]]:
    """What reaches the last BatchNorm layer of a plain loop, and its mean from training."""
    adapted: Any = adapt(load_model("tiny"), chosen.method, **chosen.settings)
    seen: list[Tensor] = []
    adapted.layers[-1].register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    for batch in open_stream("cifar10-c", chosen.plan, folder).batches(chosen.batch_size):
        adapted(batch.images)
    return adapted.source_mean.split(adapted.sizes)[-1], [x.mean(dim=(0, 2, 3)) for x in seen]


@pytest.mark.usefixtures("world")
def test_the_mean_of_batch_statistics_is_that_of_the_layers_own_inputs(tmp_path: Path) -> None:
    chosen = experiment("tbn", images=8)
    trace = traced(chosen, tmp_path)
    source, means = last_inputs(chosen, tmp_path)
    channel = int(source.abs().argmax())
    assert trace.channel == channel
    assert trace.source_mean == pytest.approx(float(source[channel]), rel=1e-5)
    expected = [float(mean[channel]) for mean in means]
    assert [point.mean for point in trace.points] == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.usefixtures("world")
def test_the_mean_of_tema_is_the_average_of_all_batches_so_far(tmp_path: Path) -> None:
    chosen = experiment("tema", images=8)
    trace = traced(chosen, tmp_path)
    _, means = last_inputs(chosen, tmp_path)
    assert trace.channel is not None
    momentum, average, expected = choose_momentum(10, 128, 4), 0.0, []
    for mean in means:
        average = momentum * float(mean[trace.channel]) + (1 - momentum) * average
        expected.append(average)
    assert [point.mean for point in trace.points] == pytest.approx(expected, rel=1e-4, abs=1e-6)


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
    assert all(point.mean is not None for point in trace.points)
    if method in ("source", "lame"):
        assert {point.mean for point in trace.points} == {trace.source_mean}


class PowerCutError(Exception):
    """Ends a run in the middle."""


def cut_at(stop: int) -> Any:
    def cut(tally: Tally) -> None:
        if tally.batches == stop:
            raise PowerCutError

    return cut


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("setting", ["continual", "reset_each_shift"])
def test_a_trace_is_the_same_after_kills(setting: str, tmp_path: Path) -> None:
    chosen = experiment("rectified_tema", setting, images=5, batch_size=3)
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
    assert len(trace.points) == len(record.course) == 15


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
    """And weighs less than half a MB for a network of a hundred layers."""
    assert POINTS == 200
    layers = tuple(f"layer4.0.block{number}.bn1" for number in range(100))
    row = tuple(float(f"{value:.6g}") for value in torch.rand(100).tolist())
    point = TracePoint(123_456, 0.123456, row, row)
    write_trace(Trace("big", "bn", 1, 0.1, layers, (point,) * POINTS), tmp_path)
    assert trace_file("big", tmp_path).stat().st_size < 500_000


def test_a_network_without_batch_norm_has_a_trace_without_a_channel() -> None:
    adapted = adapt(torch.nn.Sequential(torch.nn.Linear(4, 3)), "source")
    adapted(torch.rand(2, 4))
    tally = Tally.start(1, 1, traced=True)
    tally.trace = [trace_point(adapted, 2)]
    trace = finished_trace("k", adapted, tally)
    assert (trace.layer, trace.channel, trace.source_mean, trace.layers) == (None, None, None, ())
    assert trace.points == (TracePoint(2, None, (), ()),)
