"""Measures all cells of the demo on every core, and keeps what is done.

results.json holds the finished cells: the same call goes on where it stopped, and a second call
finds everything there. It is for one setup and one version of the program; another starts anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from realistic_tta.datasets.catalogue import CORRUPTIONS
from realistic_tta.datasets.generate import start_worker

from .experiment import Cell, Setup, measure, prepare, work

PACKAGE = Path(__file__).parents[1]
CORRUPTED = "cifar10-c"
Errors = dict[Cell, dict[str, float]]
_done: Any = None  # in a worker: the work all of them have done


def run(
    setup: Setup, folder: Path, workers: int, report: Callable[[float, Errors], None]
) -> Errors:
    """The errors of all cells.

    report: called several times a second with the share of the work that is done, and what is
    known so far.
    """
    errors = stored(setup, folder)
    if not errors:
        shutil.rmtree(folder / CORRUPTED, ignore_errors=True)  # perhaps another program's
    if set(errors) < set(setup.cells()):
        prepare(setup, folder / CORRUPTED, workers)
        _measure(setup, folder, workers, errors, report)
    report(1.0, errors)
    return errors


def stored(setup: Setup, folder: Path) -> Errors:
    """What an earlier call of this setup and this program has finished."""
    try:
        found = json.loads((folder / "results.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    if found.get("about") != about(setup):
        return {}
    return {Cell(row["method"], row["batch_size"]): row["errors"] for row in found["cells"]}


def about(setup: Setup) -> dict[str, Any]:
    """What results depend on: the setup, and every file of the program."""
    digest = hashlib.sha256(torch.__version__.encode())
    for file in sorted(PACKAGE.rglob("*")):
        if file.suffix in {".py", ".safetensors", ".webp"}:
            digest.update(file.read_bytes())
    return {**json.loads(json.dumps(asdict(setup))), "program": digest.hexdigest()}


def _measure(
    setup: Setup,
    folder: Path,
    workers: int,
    errors: Errors,
    report: Callable[[float, Errors], None],
) -> None:
    """Adds the cells that are missing, each written down as soon as it is known."""
    missing = [cell for cell in setup.cells() if cell not in errors]
    whole = sum(work(cell, setup.images) for cell in setup.cells()) * len(CORRUPTIONS)
    before = whole - sum(work(cell, setup.images) for cell in missing) * len(CORRUPTIONS)
    program = about(setup)
    context = get_context("spawn")
    done = context.Value("q", 0)
    with ProcessPoolExecutor(workers, context, _start, (done,)) as pool:
        futures: dict[Future[dict[str, float]], Cell] = {
            pool.submit(_one, cell, setup, folder): cell for cell in missing
        }
        try:
            while futures:
                finished, _ = wait(futures, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in finished:
                    errors[futures.pop(future)] = future.result()
                    _store(program, folder, errors)
                report(min(1.0, (before + done.value) / whole), errors)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(pool._processes.values()):  # noqa: SLF001 - no public way yet
                process.terminate()
            raise


def _start(done: Any) -> None:
    start_worker()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is asked, and ends its workers
    torch.set_num_threads(1)
    globals()["_done"] = done


def _one(cell: Cell, setup: Setup, folder: Path) -> dict[str, float]:
    def add(amount: int) -> None:
        with _done.get_lock():
            _done.value += amount

    return measure(cell, setup, folder / CORRUPTED, add)


def _store(program: dict[str, Any], folder: Path, errors: Errors) -> None:
    rows = [{**cell._asdict(), "errors": by_name} for cell, by_name in errors.items()]
    partial = folder / "results.partial"
    partial.write_text(json.dumps({"about": program, "cells": rows}, indent=1))
    partial.replace(folder / "results.json")
