"""The demo as a user runs it: in a process of its own, killed, started again."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from bench_subjects import record
from PIL import Image
from rich.console import Console

from realistic_tta.benchmark.datasets import prepare
from realistic_tta.benchmark.events import Event, Finished, Progress, Started
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.benchmark.runner import Job, evaluate, failed, make_jobs
from realistic_tta.cli.demo import (
    BATCH_SIZES,
    DATASET,
    STATISTICS,
    errors_of,
    experiments,
    headline,
    is_worse,
    progress_table,
)
from realistic_tta.cli.main import main
from realistic_tta.cli.progress import RunProgress, follow
from realistic_tta.data.registry import CORRUPTIONS

pytestmark = pytest.mark.xdist_group("demo")  # one process, so one run of it
IMAGES = 6
METHODS = list(STATISTICS)
PLANNED = experiments(METHODS, BATCH_SIZES, IMAGES, seed=1)
CELLS = 1 + 6 * 3


def demo(out: Path) -> list[str]:
    words = ["demo", "--images", str(IMAGES), "--out", str(out)]
    return [sys.executable, "-m", "realistic_tta.cli.main", *words]


def run(out: Path) -> str:
    done = subprocess.run(demo(out), check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo, killed as soon as it has its first figure, then run to the end."""
    out = tmp_path_factory.mktemp("demo")
    process = subprocess.Popen(demo(out), stdout=subprocess.DEVNULL)  # noqa: S603
    while not list((out / "records").glob("[!.]*.json")):
        assert process.poll() is None, "the demo ended before it was killed"
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 0 < len(Results(out).read()) < CELLS
    return out, run(out)


def test_a_killed_demo_goes_on(ran: tuple[Path, str]) -> None:
    out, printed = ran
    wanted = {experiment.id for experiment in PLANNED}
    assert {record.experiment for record in Results(out).read(status="done")} == wanted
    assert f"of {CELLS} results existed" in printed


def test_the_table_shows_every_method_and_batch_size(ran: tuple[Path, str]) -> None:
    out, printed = ran
    lines = {line.split()[0]: line for line in printed.splitlines() if line.split()}
    for each in Results(out).read():
        assert f"{each.error:.1f}" in lines[each.method]
    for size in BATCH_SIZES[:-1]:
        assert f" {size} " in printed
    assert max(map(len, table_of(printed))) <= 80


def test_the_picture_is_drawn(ran: tuple[Path, str]) -> None:
    with Image.open(ran[0] / "demo.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert pixels.shape[1] > 1000
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000  # photographs, not a blank


def test_a_page_with_every_figure_is_written(ran: tuple[Path, str]) -> None:
    out, printed = ran
    page = (out / "report.html").read_text()
    assert f"{out / 'report.html'}" in printed.replace("\n", "")
    for each in Results(out).read():
        assert each.key in page


def table_of(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.strip().startswith(tuple(METHODS))]


def test_a_second_run_measures_nothing_and_says_the_same(
    ran: tuple[Path, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process is started, no file of images or figures is written again."""
    out, printed = ran

    def forbidden(*_: object, **__: object) -> None:
        pytest.fail("a second run has nothing to do")

    monkeypatch.setattr("realistic_tta.benchmark.engines._Worker", forbidden)
    monkeypatch.setattr("realistic_tta.benchmark.datasets.generate", forbidden)
    kept = [path for part in ("records", "data") for path in (out / part).rglob("*.*")]
    before = {path: path.stat().st_mtime_ns for path in kept}
    start = time.monotonic()
    assert main(demo(out)[3:]) == 0
    assert time.monotonic() - start < 30  # 2 on an idle core: one picture is drawn
    assert len(before) >= CELLS + len(CORRUPTIONS)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    again = capsys.readouterr().out
    assert f"{CELLS} of {CELLS} results existed" in again
    assert table_of(again) == table_of(printed)
    assert len(table_of(again)) == len(METHODS)


def test_figures_are_those_of_one_process(ran: tuple[Path, str], tmp_path: Path) -> None:
    """The same experiment, measured here on images corrupted here."""
    chosen = next(each for each in PLANNED if each.method == "rectified_tema")
    prepare(DATASET, chosen.plan, tmp_path, workers=1)
    (job,) = make_jobs([chosen], tmp_path)
    there = Results(ran[0]).get(job.key)
    assert there.parts == evaluate(job, tmp_path).parts
    assert {part.images for part in there.parts} == {IMAGES}


def test_only_the_photographs_that_are_shown_are_corrupted(ran: tuple[Path, str]) -> None:
    (folder,) = (ran[0] / "data").iterdir()
    for name in CORRUPTIONS:
        assert len(np.load(folder / f"{name}.npy", mmap_mode="r")) == IMAGES


def test_the_benchmarks_commands_read_what_the_demo_keeps(
    ran: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--dir", str(ran[0]), "--pivot", "method,batch_size"]) == 0
    assert table_of(capsys.readouterr().out)[-1].startswith("realistic")
    words = [
        "--datasets",
        DATASET,
        "--images",
        str(IMAGES),
        "--methods",
        "tbn",
        "--batch-sizes",
        "4",
    ]
    assert main(["bench", "--out", str(ran[0]), *words]) == 0
    assert "1 of 1 done, 0 running, 0 left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--images", "2001"], "images is 2001; expected at most 2000"),
        (["--images", "0"], '"0"; expected an integer of 1 or more'),
        (["--methods", "tmea"], 'unknown method "tmea"; did you mean "tema"?'),
        (["--batch-sizes", "4,x"], '"4,x"; expected integers such as 4,2,1'),
        (["--batch-sizes", "0"], "batch size is 0; expected an integer of 1 or more"),
        (["--workers", "0"], '"0"; expected an integer of 1 or more'),
    ],
)
def test_wrong_words_are_answered(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path), *words]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def longest_fails(jobs: list[Job], folder: Path, *_: object) -> Iterator[Event]:
    for place, job in enumerate(jobs):
        each = job.experiment
        made = record(job.key, method=each.method, batch_size=each.batch_size)
        made = made if place else failed(job, "ValueError: not today")
        Results(folder).write(made)
        yield Finished(job, made)


def test_a_figure_that_failed_is_told_and_the_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realistic_tta.benchmark.engines.run_local", longest_fails)
    monkeypatch.setattr("realistic_tta.report.style.write_figure", lambda *_: None)
    words = ["--images", "2", "--methods", "source,tbn", "--batch-sizes", "4,1"]
    assert main(["demo", "--out", str(tmp_path), "--workers", "1", *words]) == 1
    told = capsys.readouterr()
    assert "1 of 3 experiments failed" in told.out
    shown = {line.split()[0]: line.split()[-2:] for line in table_of(told.out)}
    assert shown == {"source": ["37.5", "37.5"], "tbn": ["37.5", "…"]}


def test_the_source_is_measured_once() -> None:
    experiments = PLANNED
    assert [each.batch_size for each in experiments if each.method == "source"] == [64]
    assert len(experiments) == CELLS
    assert len({each.id for each in experiments}) == CELLS


RECORDS: list[Record] = [
    record(method=method, batch_size=size, error=20.0 + place + size / 2)
    for place, method in enumerate(METHODS)
    for size in BATCH_SIZES
    if method != "source" or size == 64
]
ERRORS = errors_of(RECORDS, BATCH_SIZES)


def test_the_sources_error_holds_for_every_batch_size() -> None:
    assert len(ERRORS) == len(METHODS) * len(BATCH_SIZES)
    assert {ERRORS["source", size] for size in BATCH_SIZES} == {52.0}
    assert ERRORS["tbn", 4] == 23.0
    assert errors_of([record(status="failed", error=None)], BATCH_SIZES) == {}


def test_worse_than_the_source_is_broken() -> None:
    worse = ERRORS | {("tbn", 1): 55.0}
    assert is_worse(worse, "tbn", 1)
    assert not is_worse(worse, "tbn", 4)
    assert not is_worse({}, "tbn", 4)


def test_the_headline_names_the_figures() -> None:
    told = headline(ERRORS, BATCH_SIZES)
    assert not headline({}, BATCH_SIZES)
    for cell in (("source", 1), ("realistic", 1), ("tbn", 1), ("tbn", 64)):
        assert f"{ERRORS[cell]:.1f}" in told


def test_on_a_terminal_the_table_fills_and_says_how_long_it_takes() -> None:
    screen = Console(width=80, file=io.StringIO(), force_terminal=True)
    source, other = Job(PLANNED[0], "s", "n"), Job(PLANNED[1], "s", "n")
    events: list[Event] = [Started(source), Progress(source, 1, 2, 50.0)]
    events += [Finished(source, record(source.key, error=48.1)), Started(other)]
    table = partial(progress_table, methods=METHODS, sizes=BATCH_SIZES)
    follow(RunProgress({source: 1, other: 1}, []), events, table, screen)
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    assert "48.1" in shown
    assert "50 %, about 0 s left" in shown
