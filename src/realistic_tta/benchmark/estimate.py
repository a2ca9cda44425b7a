"""Estimates how long experiments take: to run the longest first, and for `--dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.data.registry import data_folder
from realistic_tta.models.checkpoints import load_model

from .datasets import find_dataset, open_published
from .experiment import Experiment
from .orderings import Part
from .runner import Job, timed
from .scenarios import SCENARIOS

LAUNCH = 4  # fixed cost of a forward pass, in images
# Approximate cost of a method relative to the source model; 1 if not listed.
PASSES = {"rectified_tema": 2, "tent": 3, "eta": 3, "sar": 5, "adacontrast": 10, "cotta": 45}


def images_of(experiment: Experiment) -> int:
    """Number of images in each part of the stream."""
    if experiment.images is not None:
        return experiment.images
    if find_dataset(experiment.dataset).published is None:
        return len(load_bundled_images())
    return _stored(experiment.dataset, experiment.plan.parts[0], data_folder())


@cache
def _stored(dataset: str, part: Part, folder: Path) -> int:
    return len(open_published(dataset, folder, [part.corruption]).part(*part))


def batches_of(experiment: Experiment, images: int) -> int:
    """Number of batches in the stream, with so many images in each part."""
    parts = len(experiment.plan.parts)
    if SCENARIOS[experiment.scenario].mixed:
        return -(-parts * images // experiment.batch_size)
    return parts * -(-images // experiment.batch_size)


def work(experiment: Experiment, images: int) -> int:
    """Cost of an experiment, in images through the source model."""
    parts = len(experiment.plan.parts)
    batches = batches_of(experiment, images)
    return PASSES.get(experiment.method, 1) * (parts * images + LAUNCH * batches)


def longest_first(jobs: Sequence[Job]) -> dict[Job, int]:
    """The cost of each job, in descending order, so that no worker idles at the end."""
    costs = {job: work(job.experiment, images_of(job.experiment)) for job in jobs}
    return dict(sorted(costs.items(), key=lambda item: -item[1]))


def seconds(experiments: Sequence[Experiment]) -> list[float]:
    """Seconds per experiment on one core, extrapolated from a few forward passes."""
    return [
        PASSES.get(each.method, 1) * _pass_seconds(each) * batches_of(each, images_of(each))
        for each in experiments
    ]


def _pass_seconds(experiment: Experiment) -> float:
    side = 224 if experiment.dataset == "imagenet-c" else 32
    return _measured(experiment.model, min(experiment.batch_size, images_of(experiment)), side)


@cache
def _measured(model: str, images: int, side: int) -> float:
    """Seconds of one forward pass, the best of three."""
    loaded, batch = load_model(model), torch.rand(images, 3, side, side)
    return min(timed(loaded, batch)[1] for _ in range(3))
