"""Writes corrupted images in the layout of CIFAR-10-C: one .npy a corruption, severities in blocks.

The work is cut into pieces of a fixed size, each with a generator of its own, so that the bytes do
not depend on how many processes share it. A corruption's file gets its name when it is complete;
what is complete is not made again. Read back by stored.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from realistic_tta.errors import SettingError

from .cifar_c import ABOUT
from .corruptions import corrupt
from .corruptions.catalogue import FUNCTIONS, check
from .corruptions.pixels import Bytes
from .registry import CORRUPTIONS, SEVERITIES

PIECE = 250  # images; fixed, because every piece has its own generator


@dataclass(frozen=True)
class Progress:
    """Pieces of one corruption done so far."""

    name: str
    done: int
    pieces: int


@dataclass(frozen=True)
class _Job:
    """What all corruptions of one call share."""

    clean: Path  # the images, memory-mapped by every process
    out: Path
    severities: tuple[int, ...]
    seed: int

    def partial(self, name: str) -> Path:
        return self.out / f"{name}.partial"


@dataclass(frozen=True)
class _Piece:
    """What one process makes at a time, and where in the corruption's file it goes."""

    job: _Job
    name: str
    severity: int
    start: int
    offset: int


def generate(
    images: Bytes,
    labels: NDArray[np.int64],
    out: Path,
    *,
    names: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    workers: int = 1,
    report: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Corrupts the images and writes them, with their labels, below `out`.

    images: (image, row, column, 3), bytes. Interrupted, the same call goes on.
    """
    if len(images) != len(labels):
        raise SettingError(f"{len(images)} images came with {len(labels)} labels; expected as many")
    for name in names:  # before hours of work, not after
        for severity in severities:
            check(name, severity)
    digest = hashlib.sha256(images.tobytes()).hexdigest()
    about = {"images": len(images), "severities": list(severities), "seed": seed, "clean": digest}
    check_plan(out, about)
    _write(out / "labels.npy", np.tile(labels, len(severities)))
    job = _Job(clean_file(out), out, tuple(severities), seed)
    _write(job.clean, images)
    missing = [name for name in names if not (out / f"{name}.npy").exists()]
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=start_worker) as pool:
        for name in missing:
            _generate_one(pool, job, name, report)
    job.clean.unlink()


def clean_file(out: Path) -> Path:
    """Where the clean images lie for the workers, until all corruptions are made."""
    return out / "clean.npy"


def _generate_one(
    pool: ProcessPoolExecutor, job: _Job, name: str, report: Callable[[Progress], None]
) -> None:
    count, *picture = np.load(job.clean, mmap_mode="r").shape
    whole = (len(job.severities) * count, *picture)
    np.lib.format.open_memmap(job.partial(name), "w+", np.uint8, whole).flush()
    pieces = list(_pieces(job, name, count))
    for done, future in enumerate(as_completed([pool.submit(_make, p) for p in pieces]), start=1):
        future.result()
        report(Progress(name, done, len(pieces)))
    job.partial(name).replace(job.out / f"{name}.npy")


def _pieces(job: _Job, name: str, count: int) -> Iterator[_Piece]:
    for block, severity in enumerate(job.severities):
        for start in range(0, count, PIECE):
            yield _Piece(job, name, severity, start, block * count + start)


def _make(piece: _Piece) -> None:
    images = np.load(piece.job.clean, mmap_mode="r")[piece.start : piece.start + PIECE]
    key = [piece.job.seed, list(FUNCTIONS).index(piece.name), piece.severity, piece.start // PIECE]
    corrupted = corrupt(np.asarray(images), piece.name, piece.severity, np.random.default_rng(key))
    target = np.lib.format.open_memmap(piece.job.partial(piece.name), "r+")
    target[piece.offset : piece.offset + len(images)] = corrupted
    target.flush()


def start_worker() -> None:
    """One thread, for there are other processes; and none that outlives a killed parent."""
    cv2.setNumThreads(1)
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # the parent is gone: nobody waits for what this process would write


def check_plan(out: Path, plan: dict[str, Any]) -> None:
    """Writes down what the folder holds, or raises if it holds something else."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / ABOUT
    if file.exists():
        found: Any = json.loads(file.read_text())
        if found != plan:
            raise SettingError(
                f"{file} says that the folder holds {found}; expected {plan}. "
                "Give another folder, or remove this one"
            )
        return
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(plan, indent=1))
    partial.replace(file)


def _write(file: Path, array: NDArray[Any]) -> None:
    partial = file.with_suffix(".partial")
    with partial.open("wb") as stream:
        np.save(stream, array)
    partial.replace(file)
