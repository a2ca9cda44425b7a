"""The demo as a user runs it: in a process of its own, killed, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from realistic_tta.cli import main
from realistic_tta.datasets.catalogue import CORRUPTIONS
from realistic_tta.demo.experiment import Cell, Setup, measure, prepare, work
from realistic_tta.demo.words import breaks, headline, mean_error, table

IMAGES = 6
SETUP = Setup(images=IMAGES)
METHODS, BATCH_SIZES = SETUP.methods, SETUP.batch_sizes


def demo(out: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "realistic_tta.cli",
        "demo",
        "--images",
        str(IMAGES),
        "--out",
        str(out),
    ]


def run(out: Path) -> str:
    done = subprocess.run(demo(out), check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout


def results(out: Path) -> dict[Cell, dict[str, float]]:
    rows = json.loads((out / "results.json").read_text())["cells"]
    return {Cell(row["method"], row["batch_size"]): row["errors"] for row in rows}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo, killed as soon as it has its first figure, then run to the end."""
    out = tmp_path_factory.mktemp("demo")
    process = subprocess.Popen(demo(out), stdout=subprocess.DEVNULL)  # noqa: S603
    while not (out / "results.json").exists():
        assert process.poll() is None, "the demo ended before it was killed"
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 0 < len(results(out)) < len(SETUP.cells())
    return out, run(out)


def test_a_killed_demo_goes_on(ran: tuple[Path, str]) -> None:
    out, printed = ran
    assert set(results(out)) == set(SETUP.cells())
    assert "figures were there" in printed


def test_the_table_shows_every_method_and_batch_size(ran: tuple[Path, str]) -> None:
    out, printed = ran
    lines = {line.split()[0]: line for line in printed.splitlines() if line.split()}
    for method, row in table(results(out), SETUP):
        for error in row:
            assert f"{error:.1f}" in lines[method]
    for size in BATCH_SIZES[:-1]:
        assert f"{size} at once" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_the_picture_is_drawn(ran: tuple[Path, str]) -> None:
    with Image.open(ran[0] / "demo.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert pixels.shape[1] > 1000
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000  # photographs, not a blank


def test_a_second_run_measures_nothing_and_says_the_same(ran: tuple[Path, str]) -> None:
    out, printed = ran
    before = (out / "results.json").stat().st_mtime_ns
    again = run(out)
    assert (out / "results.json").stat().st_mtime_ns == before
    assert f"{len(SETUP.cells())} of {len(SETUP.cells())} figures were there" in again

    def figures(text: str) -> list[str]:
        lines = text.splitlines()
        return [
            line for line in lines if line.strip().startswith(METHODS) and "at once:" not in line
        ]

    assert figures(again) == figures(printed)


def test_figures_are_those_of_one_process(ran: tuple[Path, str]) -> None:
    """The same cell, measured here on images corrupted here."""
    folder = ran[0] / "again"
    prepare(SETUP, folder, workers=1)
    done: list[int] = []
    cell = Cell("rectified_tema", 4)
    assert measure(cell, SETUP, folder, done.append) == results(ran[0])[cell]
    assert sum(done) == work(cell, IMAGES) * len(CORRUPTIONS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--images", "2001"], "images is 2001; expected 1 to 2000"),
        (["--methods", "tmea"], 'unknown method "tmea"; did you mean "tema"?'),
        (["--batch-sizes", "4,x"], 'batch sizes are "4,x"; expected numbers such as 64,4,1'),
        (["--batch-sizes", "0"], "expected at least one of each, sizes of 1 or more"),
    ],
)
def test_wrong_words_are_answered(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path), *words]) == 1
    assert told in capsys.readouterr().err


def test_the_source_is_measured_once_and_the_longest_first() -> None:
    cells = SETUP.cells()
    assert [cell.batch_size for cell in cells if cell.method == "source"] == [64]
    assert len(cells) == 1 + 5 * 3
    assert cells[0] == Cell("rectified_tema", 1)


ERRORS = {
    Cell(method, size): {"fog": 10.0 + place, "snow": 30.0 + place + size}
    for place, method in enumerate(METHODS)
    for size in BATCH_SIZES
}


def test_means_are_over_corruptions_and_the_source_has_one() -> None:
    assert mean_error(ERRORS, "tbn", 4) == (11 + 35) / 2
    assert {mean_error(ERRORS, "source", size) for size in BATCH_SIZES} == {52.0}
    assert mean_error({}, "tbn", 4) is None


def test_worse_than_the_source_is_broken() -> None:
    worse = ERRORS | {Cell("tbn", 1): {"fog": 60.0, "snow": 50.0}}
    assert breaks(worse, "tbn", 1)
    assert not breaks(worse, "tbn", 4)
    assert not breaks({}, "tbn", 4)


def test_the_headline_names_the_figures() -> None:
    told = headline(ERRORS, SETUP)
    assert not headline({}, SETUP)
    for cell in (("source", 1), ("rectified_tema", 1), ("tbn", 1), ("tbn", 64)):
        assert f"{mean_error(ERRORS, *cell):.1f}" in told
