"""What can be said to methods/realistic.py: three numbers, and its pieces, each to be left out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from realistic_tta.errors import SettingError
from realistic_tta.functional.momentum import THRESHOLD

from .checks import check_count, check_number, check_switch


@dataclass(frozen=True)
class RealisticSettings:
    """classes: how many the network tells apart. source_batch_size: of its training.

    noise: how many times the expected noise counts as chance, twice as many where labels come in
    runs, and with label_runs=False once more for each image of a run. tolerance: how far from the
    source counts as no shift, as a part of its variance: 0.01 would be a tenth of a deviation.
    source_share: what the source weighs at least.
    The rest are the pieces, each of which can be left out:
    total_variance: what images differ by counts, not only what batches hold.
    warm_start: the plain mean at first, rather than an average that begins at the source.
    several_memories: of 8, 1 and 1/8 training batches; else one, of a training batch.
    lean_on_source: the source counts, and all the more where noise explains the distance from it.
    changes: what came before a change of domain counts for as much as it is probable that nothing
    has changed; seen in the first layer.
    label_runs: where labels come in runs, an image is answered by those before and after it, too.
    mirror: batches of up to so many images are looked at in the mirror, too, as far as the network
    gives the same answers there (statistics/likeness.py); 0 for none.
    One that has to be asked for:
    robust: an image far outside what the network was trained on counts for next to nothing
    (statistics/trust.py).
    """

    classes: int | None = None
    source_batch_size: int = 128
    noise: float = 1.0  # these three: docs/beyond.md, on validation corruptions
    tolerance: float = 0.0075
    source_share: float = 0.5  # the paper's gamma, there the most that the source may weigh
    total_variance: bool = True
    warm_start: bool = True
    several_memories: bool = True
    lean_on_source: bool = True
    changes: bool = True
    label_runs: bool = True
    mirror: int = 4  # more images take twice the time where a single one takes half as much again
    robust: bool = False

    def __post_init__(self) -> None:
        check_count("source_batch_size", self.source_batch_size)
        if self.classes is not None:
            check_count("classes", self.classes)
        check_number("noise", self.noise, low=0)
        check_number("tolerance", self.tolerance, low=0)
        check_number("source_share", self.source_share, low=0, high=1)
        check_count("mirror", self.mirror, low=0)
        check_switch("robust", self.robust)
        if self.robust and not self.total_variance:
            raise SettingError("robust=True needs total_variance=True: trust is had in moments")

    @property
    def decay(self) -> float:
        """Of the longest memory, with each image; what else is learnt of a stream keeps pace."""
        return math.pow(THRESHOLD, 1 / self.scopes[0])

    @property
    def scopes(self) -> tuple[float, ...]:
        """How many images each memory reaches back, the longest first.

        The middle one is where Eq. 5 has its optimum if momentum is not held to a grid.
        """
        multiples = (8.0, 1.0, 1 / 8) if self.several_memories else (1.0,)
        return tuple(max(multiple * self.source_batch_size, 2.0) for multiple in multiples)
