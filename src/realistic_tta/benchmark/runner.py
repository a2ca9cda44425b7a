"""Evaluates one experiment. Labels and domain names stop here: methods see images only.

After an interruption the same call resumes from the last checkpoint, with identical results.
engines.py and ray_engine.py call it for many experiments.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from realistic_tta import METHODS, AdaptedModel, adapt
from realistic_tta.models.checkpoints import load_model
from realistic_tta.storage import model_hash

from .checkpoints import checkpoint_file, restore, save
from .datasets import find_dataset, open_stream
from .environment import best_device, device_name, peak_memory, reset_peak_memory, versions
from .experiment import Experiment
from .manifest import manifest, short_hash
from .metrics import Metrics, Point
from .orderings import Part
from .results import Record, Results
from .scenarios import StreamPlan
from .stream import StreamBatch
from .traces import Trace, TracePoint, rounded, trace_file, write_trace

SAVE_EVERY = 120.0  # seconds


@dataclass(frozen=True)
class Job:
    """An experiment with the hashes of its images and weights; other hashes make another job."""

    experiment: Experiment
    stream: str
    model_checksum: str
    traces: bool = False  # does not change the results

    @property
    def key(self) -> str:
        """Names the record and the checkpoint."""
        return short_hash([self.experiment.id, self.stream, self.model_checksum])


def make_jobs(
    experiments: Sequence[Experiment], folder: Path, *, traces: bool = False
) -> list[Job]:
    """Hashes every stream and every model once."""
    streams: dict[tuple[str, StreamPlan], str] = {}
    models: dict[str, str] = {}
    for each in experiments:
        if (each.dataset, each.plan) not in streams:
            stream = open_stream(each.dataset, each.plan, folder)
            streams[each.dataset, each.plan] = short_hash(manifest(each.dataset, stream))
        if each.model not in models:
            models[each.model] = model_hash(load_model(each.model))[:16]
    return [
        Job(each, streams[each.dataset, each.plan], models[each.model], traces)
        for each in experiments
    ]


def is_done(job: Job, results: Results) -> bool:
    """Whether the record exists and, if requested, the trace."""
    traced = trace_file(job.key, results.folder).exists()
    return results.done(job.key) and (traced or not job.traces)


def evaluate(
    job: Job,
    folder: Path,
    report: Callable[[Metrics], None] = lambda _: None,
    save_every: float = SAVE_EVERY,
) -> Record:
    """Runs the experiment, or the rest of it.

    folder: of generated images and checkpoints. report: called after every batch.
    """
    experiment, device = job.experiment, best_device()
    model = load_model(experiment.model).to(device)
    stream = open_stream(experiment.dataset, experiment.plan, folder)
    adapted = adapt_for(experiment, model)
    path = checkpoint_file(job.key, folder)
    metrics = restore(path, adapted, traced=job.traces) or Metrics.start(
        stream.count(experiment.batch_size), len(stream.parts), traced=job.traces
    )
    reset_peak_memory()
    last_saved = last = time.perf_counter()
    for batch in stream.batches(experiment.batch_size, start=metrics.batches):
        if batch.reset:
            adapted.reset()
        source_seconds = _predict(adapted, model, batch, metrics, device)
        report(metrics)
        now = time.perf_counter()
        metrics.seconds += now - last - source_seconds  # timing the source is not part of the run
        last = now
        if now - last_saved >= save_every:
            save(path, adapted, metrics)
            last_saved = time.perf_counter()
    metrics.flush()
    if metrics.trace is not None:  # before the record: a finished record always has its trace
        layers = tuple(layer.name for layer in adapted.report().layers)
        points = tuple(TracePoint(n, tuple(w), tuple(d)) for n, w, d in metrics.trace)
        write_trace(Trace(job.key, layers, points), folder)
    return finished(job, metrics, stream.parts, device)


def _predict(
    adapted: AdaptedModel,
    model: nn.Module,
    batch: StreamBatch,
    metrics: Metrics,
    device: torch.device,
) -> float:
    """Predicts and counts one batch; returns the seconds spent on timing the source model."""
    images = batch.images.to(device)
    outputs, method_seconds = timed(adapted, images)
    metrics.add(batch.parts, batch.labels, outputs)
    metrics.method_seconds += method_seconds
    if metrics.trace is not None and metrics.is_at_point():
        metrics.flush()
        metrics.trace.append(trace_point(adapted, metrics.error_curve[-1][0]))
    if not metrics.is_timed(batch.number):
        return 0.0
    source_seconds = timed(model, images)[1]
    metrics.timed.append((method_seconds, source_seconds))
    return source_seconds


def trace_point(adapted: AdaptedModel, images: int) -> Point:
    """The per-layer values of `report`. images: seen so far."""
    layers = adapted.report().layers
    weights = [rounded(layer.source_weight) for layer in layers]
    return images, weights, [rounded(layer.divergence) for layer in layers]


def timed(model: nn.Module, images: Tensor) -> tuple[Tensor, float]:
    """The outputs on the CPU, so that a GPU has finished, and the seconds taken."""
    start = time.perf_counter()
    with torch.no_grad():
        outputs: Tensor = model(images).cpu()
    return outputs, time.perf_counter() - start


def adapt_for(experiment: Experiment, model: nn.Module) -> AdaptedModel:
    """Adapts the model as the experiment says; hyperparameters a method lacks are not passed."""
    taken = {each.name for each in dataclasses.fields(METHODS[experiment.method].settings_type)}
    known = {
        "source_batch_size": find_dataset(experiment.dataset).source_batch_size,
        "seed": experiment.seed,
    }
    options: dict[str, Any] = {name: value for name, value in known.items() if name in taken}
    return adapt(model, experiment.method, **{**options, **experiment.hyperparameters})


def finished(job: Job, metrics: Metrics, parts: tuple[Part, ...], device: torch.device) -> Record:
    """The record of a completed run."""
    return dataclasses.replace(
        _record(job, "done"),
        error=metrics.error(),
        parts=metrics.parts(parts),
        error_curve=tuple(metrics.error_curve),
        seconds=metrics.seconds,
        method_seconds=metrics.method_seconds,
        cost=metrics.cost(),
        peak_memory=peak_memory(),
        resumed=metrics.resumed,
        device=device_name(device),
    )


def failed(job: Job, message: str) -> Record:
    """The record of a run that failed."""
    return dataclasses.replace(_record(job, "failed"), message=message)


def _record(job: Job, status: Literal["done", "failed"]) -> Record:
    facts: dict[str, Any] = {**dataclasses.asdict(job.experiment), **versions()}
    return Record(
        key=job.key,
        experiment=job.experiment.id,
        stream=job.stream,
        model_checksum=job.model_checksum,
        status=status,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
    )
