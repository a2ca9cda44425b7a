"""Writes corrupted images in the layout of CIFAR-10-C or ImageNet-C.

The work is split into pieces of fixed size, each with its own random generator, so the result does
not depend on the number of processes. A corruption gets its final name when it is complete. Calling
again resumes: complete corruptions are not computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from realistic_tta.errors import OptionError
from realistic_tta.storage import atomic_write

from .cifar_c import DESCRIPTION_FILE
from .corruptions import FUNCTIONS, check_corruption, corrupt
from .corruptions.pixels import Bytes
from .imagenet import Photographs, read_photograph
from .images import write_array
from .registry import CORRUPTIONS, SEVERITIES

PIECE = 250  # images; fixed, because every piece has its own generator
PHOTOGRAPH_PIECE = 20  # the same for photographs
JPEG_QUALITY = 85  # of the published files


@dataclass(frozen=True)
class Progress:
    """Number of completed pieces of one corruption."""

    name: str
    done: int
    pieces: int


Report = Callable[[Progress], None]


def generate(
    images: Bytes,
    labels: NDArray[np.int64],
    out: Path,
    *,
    names: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    workers: int = 1,
    report: Report = lambda _: None,
) -> None:
    """Corrupt the images and write them in the layout of CIFAR-10-C, one .npy per corruption.

    Args:
        images: (image, row, column, 3) uint8, 32 or 224 px square.
        labels: (image,).
        out: folder to write; `open_cifar_c` reads it.
        names: corruptions to apply.
        severities: in the order of the blocks of each file.
        seed: of the random generators.
        workers: number of processes.
        report: called after every piece.
    """
    if len(images) != len(labels):
        raise OptionError(f"{len(images)} images came with {len(labels)} labels; expected as many")
    _check_corruptions(names, severities)
    tiled = np.tile(labels, len(severities))
    _check_labels(out / "labels.npy", tiled)
    digest = hashlib.sha256(images.tobytes()).hexdigest()
    description = {"images": len(images), "severities": list(severities), "seed": seed}
    _check_folder(out, description | {"clean": digest})
    write_array(out / "labels.npy", tiled)
    write_array(input_file(out), images)
    with _pool(workers) as pool:
        for name in names:
            if (out / f"{name}.npy").exists():
                continue
            partial = out / f"{name}.partial"
            whole = (len(severities) * len(images), *images.shape[1:])
            np.lib.format.open_memmap(partial, "w+", np.uint8, whole).flush()
            pieces = [
                (_Task(name, severity, number, seed), out, start, block * len(images) + start)
                for block, severity in enumerate(severities)
                for number, start in enumerate(range(0, len(images), PIECE))
            ]
            _run(pool, _corrupt_piece, pieces, name, report)
            partial.replace(out / f"{name}.npy")
    input_file(out).unlink()


def generate_photographs(
    photographs: Photographs,
    out: Path,
    *,
    names: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    workers: int = 1,
    report: Report = lambda _: None,
) -> None:
    """Corrupt photographs and write them in the layout of ImageNet-C.

    The files are out/corruption/severity/class/name.JPEG; `open_imagenet_c` reads them. The
    arguments are those of `generate`.
    """
    _check_corruptions(names, severities)
    listed = "\n".join(f"{file.parent.name}/{file.name}" for file in photographs.files)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    _check_folder(out, {"images": len(photographs), "seed": seed, "clean": digest})
    starts = range(0, len(photographs), PHOTOGRAPH_PIECE)
    parts = [slice(start, start + PHOTOGRAPH_PIECE) for start in starts]
    with _pool(workers) as pool:
        for name, severity in ((name, severity) for name in names for severity in severities):
            folder = out / name / str(severity)
            if folder.exists():
                continue
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            for label in photographs.classes:  # all: a label is the rank of its folder
                (partial / label).mkdir(parents=True)
            targets = [
                partial / photographs.classes[label] / f"{file.stem}.JPEG"
                for file, label in zip(photographs.files, photographs.labels, strict=True)
            ]
            pieces = [
                (_Task(name, severity, number, seed), photographs.files[part], targets[part])
                for number, part in enumerate(parts)
            ]
            _run(pool, _corrupt_photographs, pieces, f"{name}, severity {severity}", report)
            os.replace(partial, folder)  # noqa: PTH105 - atomic for folders


def input_file(out: Path) -> Path:
    """Return the file of the workers' input, which exists until all corruptions are complete."""
    return out / "input.partial"


def start_worker() -> None:
    """Use one thread per process, and end the process when its parent is killed."""
    cv2.setNumThreads(1)
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # the parent is gone and nobody reads the result


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, get_context("spawn"), initializer=start_worker)


def _run(
    pool: ProcessPoolExecutor,
    work: Callable[..., None],
    pieces: Sequence[tuple[Any, ...]],
    name: str,
    report: Report,
) -> None:
    futures = [pool.submit(work, *piece) for piece in pieces]
    for done, future in enumerate(as_completed(futures), start=1):
        future.result()
        report(Progress(name, done, len(futures)))


def _check_corruptions(names: Sequence[str], severities: Sequence[int]) -> None:
    """Check all arguments before hours of work begin."""
    for name in names:
        for severity in severities:
            check_corruption(name, severity)


def _check_folder(out: Path, description: dict[str, Any]) -> None:
    """Write the description of the folder, or raise if it holds another set."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / DESCRIPTION_FILE
    if not file.exists():
        atomic_write(file, json.dumps(description, indent=1).encode())
        return
    found: Any = json.loads(file.read_text())
    if found != description:
        raise OptionError(
            f"{file} shows that the folder holds {found}; expected {description}. "
            "Use another folder, or remove this one"
        )


def _check_labels(file: Path, labels: NDArray[np.int64]) -> None:
    """Raise if the folder holds other labels, as a published set in another order does."""
    if file.exists() and not np.array_equal(np.load(file), labels):
        raise OptionError(f"{file} holds other labels. Use another folder")


class _Task(NamedTuple):
    """A piece of the work with its own random generator."""

    name: str
    severity: int
    number: int
    seed: int

    def corrupt(self, images: Bytes) -> Bytes:
        key = [self.seed, list(FUNCTIONS).index(self.name), self.severity, self.number]
        return corrupt(images, self.name, self.severity, np.random.default_rng(key))


def _corrupt_piece(task: _Task, out: Path, start: int, offset: int) -> None:
    """Corrupt the images from `start` and write them to the corruption's file at `offset`."""
    images = np.load(input_file(out), mmap_mode="r")[start : start + PIECE]
    target = np.lib.format.open_memmap(out / f"{task.name}.partial", "r+")
    target[offset : offset + len(images)] = task.corrupt(np.asarray(images))
    target.flush()


def _corrupt_photographs(task: _Task, files: Sequence[Path], targets: Sequence[Path]) -> None:
    corrupted = task.corrupt(np.stack([read_photograph(file) for file in files]))
    for image, target in zip(corrupted, targets, strict=True):
        Image.fromarray(image).save(target, "JPEG", quality=JPEG_QUALITY, optimize=True)
