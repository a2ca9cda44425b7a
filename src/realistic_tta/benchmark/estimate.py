"""About how long experiments take: to run the longest first, and for `--dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from realistic_tta.benchmark.scenarios import SETTINGS
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.registry import CORRUPTIONS, data_folder
from realistic_tta.models.checkpoints import load_model

from .data import find_data, open_published
from .experiment import Experiment
from .runner import Job, timed

LAUNCH = 4  # a pass costs about as much as this many images, besides the images themselves
# How many times the plain network's time a method takes, roughly; 1 if not named.
PASSES = {"rectified_tema": 2, "tent": 3, "eta": 3, "sar": 5, "adacontrast": 10, "cotta": 45}


def images_of(experiment: Experiment) -> int:
    """How many images each part has."""
    if experiment.images is not None:
        return experiment.images
    if find_data(experiment.data).published is None:
        return len(load_sample())
    return _stored(experiment.data, data_folder())


@cache
def _stored(data: str, folder: Path) -> int:
    """Images in one part of a published set; to list ImageNet-C's takes a while."""
    return len(open_published(data, folder).part(CORRUPTIONS[0], 5))


def batches_of(experiment: Experiment, images: int) -> int:
    """How many batches the stream has, for so many images in each part."""
    setting = SETTINGS[experiment.setting]
    parts = len(setting.parts(CORRUPTIONS))
    if setting.mixed:
        return -(-parts * images // experiment.batch_size)
    return parts * -(-images // experiment.batch_size)


def work(experiment: Experiment, images: int) -> int:
    """What an experiment costs, in images through the plain network."""
    parts = len(SETTINGS[experiment.setting].parts(CORRUPTIONS))
    batches = batches_of(experiment, images)
    return PASSES.get(experiment.method, 1) * (parts * images + LAUNCH * batches)


def longest_first(jobs: Sequence[Job]) -> dict[Job, int]:
    """What each job costs, in this order: so no core idles at the end."""
    costs = {job: work(job.experiment, images_of(job.experiment)) for job in jobs}
    return dict(sorted(costs.items(), key=lambda item: -item[1]))


def seconds(experiments: Sequence[Experiment]) -> list[float]:
    """On one core of this machine, from a few passes of each network at each batch size."""
    return [
        PASSES.get(each.method, 1) * _pass_seconds(each) * batches_of(each, images_of(each))
        for each in experiments
    ]


def _pass_seconds(experiment: Experiment) -> float:
    side = 224 if experiment.data == "imagenet-c" else 32
    return _measured(experiment.network, min(experiment.batch_size, images_of(experiment)), side)


@cache
def _measured(network: str, images: int, side: int) -> float:
    """Seconds of one pass; the best of three, since the first warms up."""
    loaded, batch = load_model(network), torch.rand(images, 3, side, side)
    return min(timed(loaded, batch)[1] for _ in range(3))
