"""Writes corrupted photographs in the layout of ImageNet-C: corruption/severity/class/name.JPEG.

Pieces of a fixed size, each with a generator of its own, as in generate.py. A severity's folder
gets its name when it is complete. Read back by imagenet_c.py.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

from .corruptions import corrupt
from .corruptions.catalogue import FUNCTIONS, check
from .generate import Progress, check_plan, start_worker
from .imagenet import Photographs, read_photograph
from .registry import CORRUPTIONS, SEVERITIES

PIECE = 20  # photographs; fixed, because every piece has its own generator
QUALITY = 85  # of the published JPEG files


@dataclass(frozen=True)
class _Piece:
    """What one process makes at a time."""

    files: tuple[Path, ...]
    folders: tuple[str, ...]  # the class folder of each
    into: Path
    name: str
    severity: int
    number: int
    seed: int


def generate_photographs(
    photographs: Photographs,
    out: Path,
    *,
    names: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    workers: int = 1,
    report: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Corrupts the photographs and writes them below `out`. Interrupted, the same call goes on."""
    for name in names:  # before hours of work, not after
        for severity in severities:
            check(name, severity)
    listed = "\n".join(f"{file.parent.name}/{file.name}" for file in photographs.files)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    check_plan(out, {"images": len(photographs), "seed": seed, "clean": digest})
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=start_worker) as pool:
        for name in names:
            for severity in severities:
                folder = out / name / str(severity)
                if not folder.exists():
                    _generate_one(pool, photographs, folder, (name, severity, seed), report)


def _generate_one(
    pool: ProcessPoolExecutor,
    photographs: Photographs,
    folder: Path,
    what: tuple[str, int, int],
    report: Callable[[Progress], None],
) -> None:
    name, severity, seed = what
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for label in np.unique(photographs.labels):
        (partial / photographs.classes[label]).mkdir(parents=True)
    classes = tuple(photographs.classes[label] for label in photographs.labels)
    starts = range(0, len(photographs), PIECE)
    pieces = [
        _Piece(
            photographs.files[start : start + PIECE],
            classes[start : start + PIECE],
            *(partial, name, severity, number, seed),
        )
        for number, start in enumerate(starts)
    ]
    for done, future in enumerate(as_completed([pool.submit(_make, p) for p in pieces]), start=1):
        future.result()
        report(Progress(f"{name}, severity {severity}", done, len(pieces)))
    os.replace(partial, folder)  # noqa: PTH105 - a folder, atomically


def _make(piece: _Piece) -> None:
    images = np.stack([read_photograph(file) for file in piece.files])
    key = [piece.seed, list(FUNCTIONS).index(piece.name), piece.severity, piece.number]
    corrupted = corrupt(images, piece.name, piece.severity, np.random.default_rng(key))
    for image, file, folder in zip(corrupted, piece.files, piece.folders, strict=True):
        target = piece.into / folder / f"{file.stem}.JPEG"
        Image.fromarray(image).save(target, "JPEG", quality=QUALITY, optimize=True)
