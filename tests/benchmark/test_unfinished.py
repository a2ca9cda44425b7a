"""The saved state of a run: whole, or begun anew with the same figures; nothing in it is run."""

from __future__ import annotations

import copy
import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bench_subjects import experiment, figures

from realistic_tta.benchmark import data
from realistic_tta.benchmark.checkpoints import SUM, forget, restore, state_file
from realistic_tta.benchmark.environment import versions
from realistic_tta.benchmark.metrics import Tally
from realistic_tta.benchmark.runner import Job, adapt_for, evaluate, make_jobs
from realistic_tta.benchmark.scenarios import StreamPlan
from realistic_tta.data.registry import CORRUPTIONS
from realistic_tta.models.checkpoints import load_model


def begun(folder: Path) -> tuple[Job, Path]:
    """A run with its state saved after the last batch."""
    (job,) = make_jobs([experiment(images=2)], folder)
    evaluate(job, folder, save_every=0)
    return job, state_file(job.key, folder)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-100],
    "empty": lambda _: b"",
    "one bit in the middle": lambda content: (
        content[: len(content) // 2]
        + bytes([content[len(content) // 2] ^ 1])
        + content[len(content) // 2 + 1 :]
    ),
    "zeros, as after a power cut": lambda content: bytes(len(content)),
    "without its sum, as older versions wrote it": lambda content: content[SUM:],
}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_begun_anew(damage: str, tmp_path: Path) -> None:
    job, path = begun(tmp_path)
    whole = evaluate(job, tmp_path / "whole")
    assert evaluate(job, tmp_path).resumed == 1
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    again = evaluate(job, tmp_path)
    assert again.resumed == 0
    assert figures(again) == figures(whole)


class Trap:
    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.place,)


@pytest.mark.usefixtures("world")
def test_code_in_a_state_is_never_run(tmp_path: Path) -> None:
    """Even with a right sum."""
    job, path = begun(tmp_path)
    content = io.BytesIO()
    torch.save({"versions": versions(), "tally": Trap(tmp_path / "trap")}, content)
    path.write_bytes(hashlib.sha256(content.getvalue()).digest() + content.getvalue())
    assert evaluate(job, tmp_path).resumed == 0
    assert not (tmp_path / "trap").exists()


@pytest.mark.usefixtures("world")
def test_forgetting_a_run_takes_what_kills_left_half_written_with_it(tmp_path: Path) -> None:
    _, path = begun(tmp_path)
    (path.parent / f".{path.name}.abc.partial").touch()
    (path.parent / ".other.pt.abc.partial").touch()
    forget(path)
    assert [each.name for each in path.parent.iterdir()] == [".other.pt.abc.partial"]


def test_a_kill_before_the_last_step_of_preparing_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """All corruptions are there, and so are still the clean images for the workers."""
    plan = StreamPlan(images=2)
    data.prepare("cifar10-c-sample", plan, tmp_path, workers=1)
    place = data.generated("cifar10-c-sample", plan, tmp_path)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert len(before) == len(CORRUPTIONS) + 2
    (place / "clean.npy").touch()
    data.prepare("cifar10-c-sample", plan, tmp_path, workers=1)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


@pytest.mark.usefixtures("world")
def test_a_guarded_run_goes_on_with_what_its_guard_remembers(tmp_path: Path) -> None:
    (job,) = make_jobs([experiment("tbn", images=8, settings={"guard": True})], tmp_path)
    whole = evaluate(job, tmp_path / "whole")

    def stop(tally: Tally) -> None:
        if tally.batches == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(job, tmp_path, stop, save_every=0)
    resumed = adapt_for(job.experiment, load_model(job.experiment.network))
    assert restore(state_file(job.key, tmp_path), resumed) is not None
    assert resumed.guard is not None
    assert resumed.guard.seen == 19 * 4  # the batch it was stopped in had not been saved
    assert len(resumed.guard.pairs) >= 64
    again = evaluate(job, tmp_path)
    assert again.resumed == 1
    assert figures(again) == figures(whole)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("memory", [None, ("{}", {}), ("{}",)])
def test_a_state_whose_guard_cannot_go_on_is_begun_anew(memory: Any, tmp_path: Path) -> None:
    """Even with a right sum; nothing of the method's own state stays behind."""
    (job,) = make_jobs([experiment("tema", images=2, settings={"guard": True})], tmp_path)
    evaluate(job, tmp_path, save_every=0)
    path, content = state_file(job.key, tmp_path), io.BytesIO()
    state = torch.load(io.BytesIO(path.read_bytes()[SUM:])) | {"guard": memory}
    torch.save({name: each for name, each in state.items() if each}, content)
    path.write_bytes(hashlib.sha256(content.getvalue()).digest() + content.getvalue())
    adapted = adapt_for(job.experiment, load_model(job.experiment.network))
    before = copy.deepcopy(adapted.state_dict())
    assert restore(path, adapted) is None
    assert all(torch.equal(value, before[name]) for name, value in adapted.state_dict().items())
