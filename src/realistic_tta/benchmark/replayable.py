"""Which experiments of a benchmark can be replayed, and why the others cannot (`--replay`)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from realistic_tta.benchmark.scenarios import SETTINGS
from realistic_tta.methods.replayable import why_not
from realistic_tta.models.checkpoints import load_model

from .data import open_stream
from .environment import best_device
from .experiment import Experiment
from .replay import TOGETHER
from .runner import Job, adapt_for


def with_replay(jobs: Sequence[Job], folder: Path) -> tuple[list[Job], Counter[str]]:
    """The jobs, to be replayed where they can be; and why not, with the number of such jobs."""
    tried: dict[str, str | None] = {}
    found, reasons = [], Counter[str]()
    for job in jobs:
        asked = job.experiment
        what = f"{asked.network} {asked.data} {asked.method} {sorted(asked.settings.items())}"
        if (reason := _not_worth_it(job)) is None:
            if what not in tried:
                tried[what] = _try(asked, folder)
            reason = tried[what]
        found.append(dataclasses.replace(job, replay=reason is None))
        reasons += Counter([reason] if reason else [])
    return found, reasons


def _not_worth_it(job: Job) -> str | None:
    """What can be told without a network."""
    if job.traces:
        return "traces watch the layers after single batches"
    if SETTINGS[job.experiment.setting].reset == "batch":
        return f"{job.experiment.setting} resets before each batch"
    if 2 * job.experiment.batch_size > TOGETHER:
        return f"batches of more than {TOGETHER // 2} images are large already"
    return None


def _try(experiment: Experiment, folder: Path) -> str | None:
    """Whether the method takes the network, tried with the first images of the stream."""
    adapted = adapt_for(experiment, load_model(experiment.network).to(best_device()))
    stream = open_stream(experiment.data, experiment.plan, folder)
    images = next(stream.batches(2)).images
    return why_not(adapted, images.to(adapted.step.device))
