"""`rtta bench` and `rtta results` as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_subjects import figures, record, write_world
from rich.console import Console
from safetensors.torch import save_file
from subjects import residual

from realistic_tta import METHODS
from realistic_tta.benchmark import datasets as benchmark_datasets
from realistic_tta.benchmark.events import Died, Event, Finished, Progress, Started
from realistic_tta.benchmark.experiment import Experiment
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.benchmark.runner import Job, evaluate, failed
from realistic_tta.cli.main import main
from realistic_tta.cli.progress import RunProgress, error_table, follow
from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.data.images import Images

BENCH = ["bench", "--models", "resnet-20", "--images", "2", "--batch-sizes", "2"]
BENCH += ["--methods", "tbn,rectified_tema", "--workers", "1", "--save-every", "0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "dataset"
    write_world(folder, images=10)
    save_file(residual().state_dict(), folder / "models" / "resnet-20.safetensors")
    return folder


@pytest.fixture(autouse=True)
def _world(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTTA_DATA", str(data))


def test_a_killed_benchmark_goes_on_and_finished_work_is_not_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL for the whole command as soon as it has a record; then the same words again."""
    words = [*BENCH, "--out", str(tmp_path)]
    command = [sys.executable, "-m", "realistic_tta.cli.main", *words]
    env = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env) as process:  # noqa: S603 - our own
        while not list((tmp_path / "records").glob("[!.]*.json")):
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    (first,) = Results(tmp_path).read()
    assert first.method == "rectified_tema", "the longest comes first"
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "1 of 2 done, 0 running, 1 left: these are not run again" in told
    assert "[2/2] tbn, batch size 2, continual cifar10-c, model resnet-20, seed 1: " in told
    done = Results(tmp_path).read()
    assert {each.method for each in done} == {"tbn", "rectified_tema"}
    for each in done:
        assert figures(each) == figures(evaluate(job_of(each), tmp_path / "alone"))
    assert not list((tmp_path / "checkpoints").glob("*"))


def job_of(done: Record) -> Job:
    asked = Experiment("resnet-20", "cifar10-c", "continual", done.method, 2, images=2)
    return Job(asked, done.stream, done.model_checksum)


def test_a_dry_run_lists_what_would_run_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["--scenarios", "continual,mixed", "--methods", "all", "--dry-run", "--out", str(out)]
    assert main([*BENCH, *words]) == 0
    told = capsys.readouterr().out
    assert f"{2 * len(METHODS)} experiments, 0 of them done:" in told
    for method in METHODS:
        assert f"{method}, batch size 2, mixed cifar10-c, model resnet-20, seed 1" in told
    assert " with 1 workers" in told
    assert not out.exists()


def failing(jobs: list[Job], folder: Path, *_: object, **__: object) -> Iterator[Event]:
    for job in jobs:
        yield Started(job)
        wrong = failed(job, "ValueError: not today")
        Results(folder).write(wrong)
        yield Finished(job, wrong)


def test_the_exit_code_says_that_an_experiment_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realistic_tta.benchmark.engines.run_local", failing)
    assert main([*BENCH, "--methods", "tbn", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "failed: tbn, batch size 2: ValueError: not today" in told.out
    assert "1 of 1 experiments failed" in told.out


def test_on_a_cluster_the_words_reach_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[object] = []

    def engine(jobs: list[Job], *words: object, **named: object) -> Iterator[Event]:
        heard.extend((words, named))
        return failing(jobs, tmp_path)

    monkeypatch.setattr("realistic_tta.benchmark.ray_engine.run_ray", engine)
    words = ["--methods", "tbn", "--out", str(tmp_path), "--engine", "ray", "--gpus", "0.25"]
    assert main([*BENCH, *words]) == 1
    assert heard == [(tmp_path, "auto"), {"gpus": 0.25, "save_every": 0.0}]


def test_other_weights_are_measured_anew_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realistic_tta.benchmark.engines.run_local", failing)
    asked = Experiment("resnet-20", "cifar10-c", "continual", "tbn", 2, images=2)
    Results(tmp_path).write(record("older", experiment=asked.id))
    assert main([*BENCH, "--methods", "tbn", "--out", str(tmp_path)]) == 1
    assert "1 experiments were done with other weights" in capsys.readouterr().out
    assert len(Results(tmp_path).read()) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--methods", "tmea"], 'unknown method "tmea"; did you mean "tema"?'),
        (["--scenarios", "continaul"], 'unknown scenario "continaul"; did you mean "continual"?'),
        (["--datasets", "cifar10c"], 'unknown dataset "cifar10c"; did you mean "cifar10-c"?'),
        (["--models", "wrn"], '"wrn"'),
        (["--batch-sizes", "4,0"], "batch size is 0; expected an integer of 1 or more"),
        (["--batch-sizes", "four"], '"four"; expected integers such as 4,2,1'),
        (["--datasets", "cifar100-c"], "fetch it with `rtta data get cifar100-c`"),
        (["--images", "11"], "images is 11; expected at most 10"),
        (["--workers", "0"], '"0"; expected an integer of 1 or more'),
        (["--address", "10.0.0.1:6379"], "--address and --gpus require --engine ray"),
        (["--engine", "ray", "--address", "nowhere"], "expected HOST:PORT of the head node"),
        (["--file", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["--orders", "file", "--scenarios", "mixed"], 'order "file" is not supported'),
    ],
)
def test_wrong_words_are_answered(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*BENCH, "--out", str(tmp_path), *words]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "records").exists()


def test_a_folder_of_another_schema_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "schema.json").write_text('{"schema": 99}')
    assert main([*BENCH, "--out", str(tmp_path)]) == 2
    assert "schema is 99; expected 3" in capsys.readouterr().err


def test_without_the_published_set_the_packages_own_images_are_used_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    whole = load_bundled_images()
    few = Images(whole.images[:3], whole.labels[:3], whole.classes)
    monkeypatch.setattr(benchmark_datasets, "load_bundled_images", lambda: few)
    monkeypatch.setattr("realistic_tta.benchmark.engines.run_local", failing)
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "empty"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "models").symlink_to(data / "models")
    assert main([*BENCH, "--methods", "tbn", "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().out
    assert "cifar10-c is not on disk" in told
    assert "not comparable with published ones" in told
    (only,) = Results(tmp_path / "out").read()
    assert only.dataset == "cifar10-c-sample"
    written = {path.name for path in (tmp_path / "out/data/cifar10-c-sample-5-first-2").iterdir()}
    assert {"fog.npy", "labels.npy", "corruptions.json"} <= written


@pytest.fixture
def jobs() -> list[Job]:
    sizes = (4, 1)
    return [
        Job(Experiment("resnet-20", "cifar10-c", "continual", "tema", size), "s", "n")
        for size in sizes
    ]


def test_the_board_knows_what_is_done_running_and_left(jobs: list[Job]) -> None:
    first, second = jobs
    progress = RunProgress({first: 10, second: 30}, [])
    assert progress.summary() == "0 of 2 done, 0 running, 2 left"
    progress.update(Started(second))
    progress.update(Progress(second, 5, 10, 20.0))
    assert progress.done() == 0.5 * 30 / 40
    assert progress.summary() == "0 of 2 done, 1 running, 1 left"
    progress.update(Died(second, "exit code -9"))
    progress.update(Finished(second, record(second.key, error=25.0)))
    progress.update(Finished(first, failed(first, "boom")))
    assert progress.done() == 1
    assert progress.summary() == "2 of 2 done, 0 running, 0 left, 1 failed"
    before = RunProgress({first: 10, second: 30}, [record(first.key, error=7.0)])
    assert before.done() == 0
    assert before.errors == {first.key: 7.0}


def test_the_table_shows_errors_so_far(jobs: list[Job]) -> None:
    progress = RunProgress(dict.fromkeys(jobs, 1), [])
    console = Console(width=100, file=io.StringIO())
    progress.update(Started(jobs[0]))
    progress.update(Progress(jobs[0], 1, 4, 33.3))
    console.print(error_table(progress))
    progress.update(Finished(jobs[0], record(jobs[0].key, error=31.2)))
    progress.update(Finished(jobs[1], failed(jobs[1], "boom")))
    console.print(error_table(progress))
    assert isinstance(console.file, io.StringIO)
    shown = [line.split() for line in console.file.getvalue().splitlines() if "tema" in line]
    assert shown[0][-4:] == ["33.3", "(25", "%)", "…"]
    assert shown[1][-2:] == ["31.2", "failed"]


def test_on_a_terminal_the_table_fills_and_says_how_long_it_takes(jobs: list[Job]) -> None:
    screen = Console(width=100, file=io.StringIO(), force_terminal=True)
    events: list[Event] = [Started(jobs[0]), Progress(jobs[0], 1, 4, 33.3)]
    events += [Finished(job, record(job.key, error=31.2)) for job in jobs]
    follow(RunProgress(dict.fromkeys(jobs, 1), []), events, error_table, screen)
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    assert "33.3 (25 %)" in shown
    assert "0 of 2 done, 1 running, 1 left" in shown
    assert "2 of 2 done, 0 running, 0 left" in shown
    assert "100 %, about 0 s left" in shown


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    results = Results(tmp_path / "stored")
    for place, (method, size) in enumerate([("tema", 1), ("tbn", 4), ("tbn", 1)]):
        results.write(record(f"key{place}", method=method, batch_size=size, error=10.0 + place))
    results.write(record("key9", method="source", status="failed", message="boom", error=None))
    return tmp_path / "stored"


def told_by(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    assert main(["results", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_results_print_filter_pivot_and_export(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = told_by(capsys, "--dir", stored)
    assert "4 records" in listed
    assert "failed: boom" in listed
    few = told_by(capsys, "--dir", stored, "--methods", "tbn", "--batch-sizes", "1,2")
    assert "1 records" in few
    pivot = told_by(capsys, "--dir", stored, "--pivot", "method,batch_size").splitlines()
    assert [line.split() for line in pivot if line][1:4] == [
        ["method", "4", "1"],
        ["tbn", "11.00", "12.00"],
        ["tema", "-", "10.00*"],
    ]
    assert pivot[-1] == "* best of the column, + second best"
    as_json = json.loads(told_by(capsys, "--dir", stored, "--json", "--methods", "tema"))
    assert [each["error"] for each in as_json] == [10.0]
    told_by(capsys, "--dir", stored, "--csv", tmp_path / "all.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text())))
    assert [row["method"] for row in rows] == ["source", "tbn", "tbn", "tema"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pivot", "method"], 'pivot is "method"; expected two fields'),
        (["--pivot", "method,batchsize"], 'did you mean "batch_size"?'),
        (["--batch-sizes", "x"], '"x"; expected integers'),
        (["--dir", "nowhere"], "nowhere: no results"),
    ],
)
def test_wrong_words_about_results_are_answered(
    words: list[str], told: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--dir", str(stored), *words]) == 2
    assert told in capsys.readouterr().err
