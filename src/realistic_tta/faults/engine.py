"""Runs the trials that are not done yet, on as many processes as wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from .store import read, write
from .trial import NO_FAULT, Trial, run


def trials(
    subjects: Sequence[str],
    faults: Sequence[str],
    shares: Sequence[float],
    corruptions: Sequence[str],
    seeds: Sequence[int],
    *,
    images: int,
    batch_size: int,
) -> list[Trial]:
    """Every combination; and each subject without any fault, to compare with.

    >>> few = trials(["tema"], ["blank"], [5], ["fog"], [1], images=30, batch_size=4)
    >>> [(each.fault, each.share) for each in few]
    [('none', 0.0), ('blank', 5)]
    """
    kinds = [(NO_FAULT, 0.0), *product(faults, shares)]
    return [
        Trial(subject, fault, share, corruption, images, batch_size, seed)
        for subject, (fault, share), corruption, seed in product(
            subjects, kinds, corruptions, seeds
        )
    ]


def run_all(wanted: Sequence[Trial], folder: Path, workers: int) -> Iterator[Trial]:
    """Runs those without an outcome in the folder, and yields each when it is kept there."""
    left = [trial for trial in wanted if read(trial, folder) is None]
    if workers == 1:
        for trial in left:
            yield _run_and_keep(trial, folder)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(_run_and_keep, trial, folder) for trial in left]
        try:
            for each in as_completed(running):
                yield each.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _run_and_keep(trial: Trial, folder: Path) -> Trial:
    write(trial, run(trial), folder)
    return trial
