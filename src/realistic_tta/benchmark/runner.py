"""Evaluates one experiment: the only place where images with labels meet a method without them.

Killed at any moment, the same call goes on from the last saved state, and its figures are those of
a run that was never interrupted. engines.py calls it for many.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from realistic_tta.benchmark.manifest import manifest, short_hash
from realistic_tta.benchmark.orderings import Part
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.benchmark.scenarios import StreamPlan
from realistic_tta.benchmark.stream import StreamBatch
from realistic_tta.benchmark.trace_files import trace_file, write_trace
from realistic_tta.methods.base import AdaptedModel
from realistic_tta.methods.catalogue import METHODS, adapt
from realistic_tta.models.checkpoints import load_model

from .checkpoints import restore, save, state_file
from .data import find_data, open_stream
from .environment import best_device, device_name, forget_peak_memory, peak_memory, versions
from .experiment import Experiment
from .metrics import Tally
from .replay import TOGETHER, chunks, see_together
from .traces import finished_trace, trace_point

SAVE_EVERY = 120.0  # seconds


@dataclass(frozen=True)
class Job:
    """An experiment with the hashes of what it will see: other images or weights, another job."""

    experiment: Experiment
    stream: str
    network_checksum: str
    traces: bool = False  # whether the layers are watched; the figures are the same
    replay: bool = False  # whether small batches share a forward; so are they

    @property
    def key(self) -> str:
        """Names the record and the saved state."""
        return short_hash([self.experiment.id, self.stream, self.network_checksum])


def make_jobs(
    experiments: Sequence[Experiment], folder: Path, *, traces: bool = False
) -> list[Job]:
    """Reads every stream's images and every network once, for their hashes."""
    streams: dict[tuple[str, StreamPlan], str] = {}
    networks: dict[str, str] = {}
    for each in experiments:
        if (each.data, each.plan) not in streams:
            stream = open_stream(each.data, each.plan, folder)
            streams[each.data, each.plan] = short_hash(manifest(each.data, stream))
        if each.network not in networks:
            networks[each.network] = checksum(load_model(each.network))
    return [
        Job(each, streams[each.data, each.plan], networks[each.network], traces)
        for each in experiments
    ]


def is_done(job: Job, results: Results) -> bool:
    """Whether there is nothing left to run: the record is there and, if wanted, the trace."""
    traced = trace_file(job.key, results.folder).exists()
    return results.done(job.key) and (traced or not job.traces)


def evaluate(
    job: Job,
    folder: Path,
    report: Callable[[Tally], None] = lambda _: None,
    save_every: float = SAVE_EVERY,
) -> Record:
    """Runs the experiment, or the rest of it.

    folder: where generated images are and the state is saved. report: called after every batch,
    or, in a replay, after every few.
    """
    experiment, device = job.experiment, best_device()
    network = load_model(experiment.network).to(device)
    stream = open_stream(experiment.data, experiment.plan, folder)
    adapted = adapt_for(experiment, network)
    saved = state_file(job.key, folder)
    tally = restore(saved, adapted, traced=job.traces) or Tally.start(
        stream.count(experiment.batch_size), len(stream.parts), traced=job.traces
    )
    forget_peak_memory()
    last_saved = mark = time.perf_counter()
    batches = stream.batches(experiment.batch_size, start=tally.batches)
    for chunk in chunks(batches, TOGETHER if job.replay else 0):
        if chunk[0].reset:
            adapted.reset()
        if len(chunk) == 1:
            plain_seconds = _see(adapted, network, chunk[0], tally)
        else:
            plain_seconds = 0.0
            see_together(adapted, chunk, tally)
        report(tally)
        now = time.perf_counter()
        tally.seconds += now - mark - plain_seconds  # the plain network is not part of the run
        mark = now
        if now - last_saved >= save_every:
            save(saved, adapted, tally)
            last_saved = time.perf_counter()
    tally.settle()
    if tally.trace is not None:  # before the record: one that is done has its trace
        write_trace(finished_trace(job.key, adapted, tally), folder)
    return finished(job, tally, stream.parts, device)


def _see(adapted: AdaptedModel, network: nn.Module, batch: StreamBatch, tally: Tally) -> float:
    """One batch, counted and, if its turn has come, timed; the seconds of the plain network."""
    images = batch.images.to(adapted.step.device)
    outputs, method_seconds = timed(adapted, images)
    tally.see(batch.parts, batch.labels, outputs)
    tally.method_seconds += method_seconds
    if tally.trace is not None and tally.is_at_point():
        tally.settle()
        tally.trace.append(trace_point(adapted, tally.course[-1][0]))
    if not tally.is_timed(batch.number):
        return 0.0
    plain_seconds = timed(network, images)[1]
    tally.timed.append((method_seconds, plain_seconds))
    return plain_seconds


def timed(network: nn.Module, images: Tensor) -> tuple[Tensor, float]:
    """Outputs, on the CPU, so that a GPU has finished; and seconds."""
    start = time.perf_counter()
    with torch.no_grad():
        outputs: Tensor = network(images).cpu()
    return outputs, time.perf_counter() - start


def adapt_for(experiment: Experiment, network: nn.Module) -> AdaptedModel:
    """The method on the network; one that draws at random gets the experiment's seed."""
    taken = {each.name for each in dataclasses.fields(METHODS[experiment.method].settings_type)}
    settings: dict[str, Any] = {
        "source_batch_size": find_data(experiment.data).source_batch_size,
        **({"seed": experiment.seed} if "seed" in taken else {}),
        **experiment.settings,
    }
    return adapt(network, experiment.method, on_bad_input="raise", **settings)  # as published


def checksum(network: nn.Module) -> str:
    """Of all weights and buffers, by name."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def finished(job: Job, tally: Tally, parts: tuple[Part, ...], device: torch.device) -> Record:
    """The record of a run that came to its end."""
    return dataclasses.replace(
        _record(job, "done"),
        error=tally.error(),
        parts=tally.parts(parts),
        course=tuple(tally.course),
        seconds=tally.seconds,
        method_seconds=tally.method_seconds,
        cost=None if tally.replayed else tally.cost(),
        replay=tally.replayed > 0,
        peak_memory=peak_memory(),
        resumed=tally.resumed,
        device=device_name(device),
    )


def failed(job: Job, message: str) -> Record:
    """The record of a run that could not come to its end."""
    return dataclasses.replace(_record(job, "failed"), message=message)


def _record(job: Job, status: Literal["done", "failed"]) -> Record:
    facts: dict[str, Any] = {**dataclasses.asdict(job.experiment), **versions()}
    return Record(
        key=job.key,
        experiment=job.experiment.id,
        stream=job.stream,
        network_checksum=job.network_checksum,
        status=status,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
    )
