"""The saved state of a run: whole, or begun anew with the same figures; nothing in it is run."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench_subjects import experiment, figures

from realistic_tta.benchmark import datasets
from realistic_tta.benchmark.checkpoints import KIND, checkpoint_file, delete, restore
from realistic_tta.benchmark.metrics import Metrics
from realistic_tta.benchmark.runner import Job, adapt_for, evaluate, make_jobs
from realistic_tta.benchmark.scenarios import StreamPlan
from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.data.registry import CORRUPTIONS
from realistic_tta.models.checkpoints import load_model
from realistic_tta.storage import read_tensors, write_tensors


def begun(folder: Path) -> tuple[Job, Path]:
    """A run with its state saved after the last batch."""
    (job,) = make_jobs([experiment(images=2)], folder)
    evaluate(job, folder, save_every=0)
    return job, checkpoint_file(job.key, folder)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-100],
    "empty": lambda _: b"",
    "one bit in the middle": lambda content: (
        content[: len(content) // 2]
        + bytes([content[len(content) // 2] ^ 1])
        + content[len(content) // 2 + 1 :]
    ),
    "zeros, as after a power cut": lambda content: bytes(len(content)),
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
def test_code_in_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    """A pickle in its place is ignored."""
    job, path = begun(tmp_path)
    torch.save({"metrics": Trap(tmp_path / "trap")}, path)
    assert evaluate(job, tmp_path).resumed == 0
    assert not (tmp_path / "trap").exists()


@pytest.mark.usefixtures("world")
def test_forgetting_a_run_takes_what_kills_left_half_written_with_it(tmp_path: Path) -> None:
    _, path = begun(tmp_path)
    (path.parent / f".{path.name}.0123456789abcdef.partial").touch()
    (path.parent / ".other.0123456789abcdef.partial").touch()
    delete(path)
    assert [each.name for each in path.parent.iterdir()] == [".other.0123456789abcdef.partial"]


def test_a_kill_before_the_last_step_of_preparing_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """All corruptions are there, and so are still the clean images for the workers."""
    plan = StreamPlan(images=2)
    datasets.prepare("cifar10-c-sample", plan, tmp_path, workers=1)
    place = datasets.generated("cifar10-c-sample", plan, tmp_path)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert len(before) == len(CORRUPTIONS) + 2
    (place / "input.partial").touch()
    datasets.prepare("cifar10-c-sample", plan, tmp_path, workers=1)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_the_clean_images_are_added_to_a_folder_that_was_complete_without(tmp_path: Path) -> None:
    """What is there stays as it is; and clean images can be all that there is."""
    name = "cifar10-c-sample"
    for plan in (StreamPlan(images=2), StreamPlan("clean", images=2)):
        datasets.prepare(name, plan, tmp_path, workers=1)
        place = datasets.generated(name, plan, tmp_path)
        written = {path.name for path in place.iterdir()}
        assert ("clean.npy" in written) == (plan.scenario == "clean")
    assert len(written) == len(CORRUPTIONS) + 3
    clean = datasets.open_stream(name, plan, tmp_path).contents[0]
    both = np.arange(2)
    np.testing.assert_array_equal(clean.take(both), load_bundled_images().take(both))
    alone = StreamPlan("clean", images=3)
    datasets.prepare(name, alone, tmp_path, workers=1)
    written = {path.name for path in datasets.generated(name, alone, tmp_path).iterdir()}
    assert written == {"clean.npy", "labels.npy", "corruptions.json"}


def test_the_severity_of_the_plan_is_generated(tmp_path: Path) -> None:
    plan = StreamPlan("mixed", images=2, severity=3)
    datasets.prepare("cifar10-c-sample", plan, tmp_path, workers=1)
    assert datasets.generated("cifar10-c-sample", plan, tmp_path).name.endswith("sample-3-first-2")
    assert {
        part.severity for part in datasets.open_stream("cifar10-c-sample", plan, tmp_path).parts
    } == {3}


@pytest.mark.usefixtures("world")
def test_a_guarded_run_goes_on_with_what_its_guard_remembers(tmp_path: Path) -> None:
    (job,) = make_jobs([experiment("tbn", images=8, hyperparameters={"guard": True})], tmp_path)
    whole = evaluate(job, tmp_path / "whole")

    def stop(metrics: Metrics) -> None:
        if metrics.batches == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(job, tmp_path, stop, save_every=0)
    again = evaluate(job, tmp_path)
    assert again.resumed == 1
    assert figures(again) == figures(whole)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("other", ["rectified_tema", "nothing"])
def test_a_checkpoint_of_another_method_is_ignored(other: str, tmp_path: Path) -> None:
    """Even with a valid checksum; nothing of it stays behind."""
    (job,) = make_jobs([experiment("tema", images=2)], tmp_path)
    evaluate(job, tmp_path, save_every=0)
    path = checkpoint_file(job.key, tmp_path)
    _, metadata = read_tensors(path, kind=KIND)
    model = load_model(job.experiment.model)
    tensors = {} if other == "nothing" else adapt_for(experiment(other), model).state_dict()
    write_tensors(path, tensors, metadata, kind=KIND)
    fresh = adapt_for(job.experiment, model)
    before = copy.deepcopy(fresh.state_dict())
    assert restore(path, fresh) is None
    after = fresh.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before if "counters" not in name)
