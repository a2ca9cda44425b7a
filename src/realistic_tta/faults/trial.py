"""One trial: a method on a stream whose middle third has faulty samples in it.

The stream is one corruption of the package's photographs. In its middle third a share of the images
is replaced by faulty ones; the rest, the good ones, are what errors are counted on. engine.py runs
many trials; table.py makes figures of what is noted here.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from realistic_tta.benchmark.manifest import short_hash
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.corruptions import corrupt
from realistic_tta.data.corruptions.catalogue import check
from realistic_tta.data.images import Images
from realistic_tta.errors import InputError, SettingError, unknown
from realistic_tta.methods.base import AdaptedModel
from realistic_tta.methods.catalogue import METHODS, adapt
from realistic_tta.models.checkpoints import load_model

from .plain import PLAIN
from .samples import FAULTS

NETWORK, SEVERITY = "cifar10", 5
NO_FAULT = "none"
OPTIONS: dict[str, dict[str, Any]] = {  # written behind a method: tema+robust
    "robust": {"robust": True},
    "guard": {"guard": True},
    "from_source": {"start": "source"},
}
SUBJECTS = (*METHODS, *PLAIN)


@dataclass(frozen=True)
class Trial:
    """subject: a method, with options behind it (tema+robust), or a plain one (plain_tema).

    share: percent of the middle third that is faulty. seed: of the images' order, the faulty places
    and what is drawn for the faults.
    """

    subject: str
    fault: str
    share: float
    corruption: str = "gaussian_noise"
    images: int = 960
    batch_size: int = 16
    seed: int = 1

    def __post_init__(self) -> None:
        name, *options = self.subject.split("+")
        if name not in SUBJECTS:
            raise SettingError(unknown("method", name, SUBJECTS))
        for option in options:
            if option not in OPTIONS:
                raise SettingError(unknown("option", option, OPTIONS))
        if self.fault not in (NO_FAULT, *FAULTS):
            raise SettingError(unknown("fault", self.fault, FAULTS))
        check(self.corruption, SEVERITY)
        if not 0 <= self.share <= 100:
            raise SettingError(f"share is {self.share}; expected percent, from 0 to 100")
        if not 3 <= self.images <= len(_sample()):
            raise SettingError(f"images is {self.images}; expected from 3 to {len(_sample())}")
        if self.batch_size < 1:
            raise SettingError(f"batch size is {self.batch_size}; expected 1 or more")

    @property
    def key(self) -> str:
        """Names the record."""
        return short_hash(dataclasses.asdict(self))

    @property
    def thirds(self) -> tuple[range, range, range]:
        """The places before, during and after the fault."""
        first, second = self.images // 3, 2 * self.images // 3
        return range(first), range(first, second), range(second, self.images)

    def faulty(self, share: float | None = None) -> list[int]:
        """The places of faulty samples; those of a smaller share are among those of a larger.

        share: another than the trial's own.
        """
        share = self.share if share is None else share
        during = self.thirds[1]
        order = torch.randperm(len(during), generator=torch.Generator().manual_seed(self.seed))
        count = round(len(during) * share / 100)
        places: list[int] = sorted((order[:count] + during.start).tolist())
        return places


class Outcome(NamedTuple):
    """wrong: places of good samples that were predicted wrongly, or not at all.

    refused: batches that the method raised for. excluded: samples that it left out by itself.
    """

    wrong: list[int]
    refused: int
    excluded: int
    seconds: float


def run(trial: Trial) -> Outcome:
    """Sends the whole stream through the method."""
    torch.set_num_threads(1)  # figures do not depend on the machine's cores
    images, labels = stream(trial)
    predict = subject(trial)
    predicted, refused = torch.full_like(labels, -1), 0
    start = time.perf_counter()
    for places in torch.arange(len(images)).split(trial.batch_size):
        try:
            predicted[places] = class_of(predict(images[places]))
        except InputError:
            refused += 1
    seconds = time.perf_counter() - start
    good = torch.ones(len(labels), dtype=torch.bool)
    good[trial.faulty()] = False
    wrong = (good & (predicted != labels)).nonzero().flatten().tolist()
    excluded = predict.health().excluded if isinstance(predict, AdaptedModel) else 0
    return Outcome(wrong, refused, excluded, seconds)


def class_of(logits: Tensor) -> Tensor:
    """The predicted class of each image; -1, none, where the logits hold NaN."""
    return torch.where(logits.isnan().any(dim=1), -1, logits.argmax(dim=1))


def subject(trial: Trial) -> Callable[[Tensor], Tensor]:
    """What is put to the test, as it is before the first image."""
    name, *options = trial.subject.split("+")
    if name in PLAIN:
        return PLAIN[name](_network())
    settings = {key: value for each in options for key, value in OPTIONS[each].items()}
    return adapt(_network(), name, **settings)


def stream(trial: Trial) -> tuple[Tensor, Tensor]:
    """All images in their order, (image, colour, row, column), the faulty among them; labels."""
    images, labels = _corrupted(trial.corruption)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(trial.seed))
    images, labels = images[order[: trial.images]], labels[order[: trial.images]]
    places = trial.faulty()
    if trial.fault != NO_FAULT and places:
        generator = torch.Generator().manual_seed(trial.seed)
        images[places] = FAULTS[trial.fault](images[places], _network(), generator)
    return images, labels


@cache
def _network() -> nn.Module:
    return load_model(NETWORK).requires_grad_(requires_grad=False)


@cache
def _sample() -> Images:
    return load_sample()


@cache
def _corrupted(corruption: str) -> tuple[Tensor, Tensor]:
    """The photographs under one corruption, and their labels."""
    sample = _sample()
    damaged = corrupt(sample.images, corruption, SEVERITY, np.random.default_rng(1))
    pixels = torch.from_numpy(damaged).permute(0, 3, 1, 2)
    images = pixels.to(torch.float32, memory_format=torch.contiguous_format) / 255
    return images, torch.from_numpy(sample.labels)
