"""`rtta reproduce` as a user runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from bench_subjects import record, write_world

from realistic_tta.benchmark.comparison import compare
from realistic_tta.benchmark.events import Event, Finished
from realistic_tta.benchmark.experiment import Experiment
from realistic_tta.benchmark.paper_tables import TABLES
from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.runner import Job, failed
from realistic_tta.cli import reproduce
from realistic_tta.cli.main import main
from realistic_tta.cli.reproduce import footnotes, markdown_table, text_table

WORDS = ["--images", "2", "--batch-sizes", "2", "--methods", "rectified_tema,source"]
WORDS += ["--workers", "1", "--models", "embedded"]
WARNING = "*** NOT COMPARABLE with the paper: model cifar10 instead of wrn-28-10-standard"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "dataset"
    write_world(folder, images=10)
    return folder


@pytest.fixture(autouse=True)
def _world(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTTA_DATA", str(world))


def told_by(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["reproduce", *map(str, words)]) == 0
    return capsys.readouterr().out


def table_rows(told: str) -> dict[str, list[str]]:
    """By label and section, the cells of a plain table."""
    rows, section = {}, ""
    for line in told.splitlines():
        words = [word for word in line.split() if word not in ("TR", "TF")]
        if words and words[0] in ("measured", "paper", "difference"):
            section = words.pop(0)
        if section and words and words[0] in ("Source", "Baseline", "TBN", "TEMA", "Ours"):
            rows[f"{words[0]} {section}"] = words[1:]
    return rows


def test_a_table_is_run_and_stands_beside_the_papers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = told_by(capsys, "ablation", *WORDS, "--out", tmp_path)
    errors = {each.method: each.error for each in Results(tmp_path).read()}
    assert set(errors) == {"source", "rectified_tema"}
    rows = table_rows(told)
    source, ours = errors["source"], errors["rectified_tema"]
    assert source is not None
    assert ours is not None
    assert rows["Baseline measured"] == [f"{source:.2f}"] * 2
    assert rows["Ours measured"] == [f"{ours:.2f}"] * 2
    assert rows["Ours paper"] == ["20.91"] * 2
    assert rows["Ours difference"] == [f"{ours - 20.91:+.2f}"] * 2
    assert list(rows) == [
        f"{label} {section}"
        for section in ("measured", "paper", "difference")
        for label in ("Baseline", "Ours")
    ]
    assert "Baseline is source, Ours is rectified_tema." in told
    assert "Erratum of the paper, CIFAR-10-C: Baseline at 2" in told
    assert "ImageNet-C: the averages" not in told, "errata of blocks that are not shown"
    above, below = told.split("CIFAR-10-C, error in percent")
    for side in (above, below):
        assert WARNING in side
        assert "skipped: CIFAR-100-C: cifar100-c is not on disk" in side
        assert "skipped: ImageNet-C: the package has no model for it" in side

    again = told_by(capsys, "ablation", *WORDS, "--out", tmp_path)
    assert "2 of 2 done, 0 running, 0 left: these are not run again" in again
    assert table_rows(again) == rows

    document = told_by(capsys, "ablation", *WORDS, "--out", tmp_path, "--markdown")
    assert f"| measured | TF | Ours | {ours:.2f} | {ours:.2f} |" in document
    assert document.count("\n**NOT COMPARABLE with the paper: model cifar10") == 2


def test_records_of_bench_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *WORDS, "--scenarios", "mixed", "--out", str(tmp_path)]) == 0
    words = [*WORDS, "--out", tmp_path, "--methods", "source"]
    told = told_by(capsys, "mixed_gradual", *words)
    assert "1 of 2 done" in told
    assert told.index("CIFAR-10-C, mixed domains, error") < told.index("CIFAR-10-C, gradual, error")
    assert {each.scenario for each in Results(tmp_path).read(method="source")} == {
        "mixed",
        "gradual",
    }


def test_what_is_missing_is_told_and_nothing_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["reproduce", "continual_cifar", "--out", str(out)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "continual_cifar was not run. Not on disk:" in told.err
    assert "model wrn-28-10-standard. Published: RobustBench" in told.err
    assert "dataset cifar100-c. Published: https://zenodo.org" in told.err
    assert "`rtta data get cifar10-c`" not in told.err, "that one is there"
    assert "`rtta reproduce continual_cifar --models embedded`" in told.err
    assert not out.exists()


def test_a_dry_run_lists_and_quick_is_fewer_images_and_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--models", "embedded", "--quick", "--dry-run", "--methods", "tbn,lame"]
    told = told_by(capsys, "mixed_gradual", *words, "--out", tmp_path / "out")
    assert f"{2 * 2 * 3} experiments, 0 of them done:" in told
    for size in (200, 16, 1):
        assert f"lame, batch size {size}, mixed cifar10-c, model cifar10" in told
    assert "mixed domains: model cifar10, images cifar10-c, 200 per corruption" in told
    assert "gradual: model cifar10, images cifar10-c, 22 per corruption" in told
    assert told.count("(larger batches than 22 are cut to 22 images)") == 1
    assert "fewer images ***" in told
    assert not (tmp_path / "out").exists()


def failing(jobs: Sequence[Job], folder: Path, *_: object, **__: object) -> Iterator[Event]:
    for job in jobs:
        wrong = failed(job, "ValueError: not today")
        Results(folder).write(wrong)
        yield Finished(job, wrong)


def test_what_failed_has_no_figure_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realistic_tta.benchmark.engines.run_local", failing)
    assert main(["reproduce", "ablation", *WORDS, "--out", str(tmp_path)]) == 1
    told = capsys.readouterr()
    rows = table_rows(told.out)
    assert rows["Ours measured"] == rows["Ours difference"] == ["-", "-"]
    assert rows["Ours paper"] == ["20.91", "20.91"]
    assert "failed: rectified_tema, batch size 2: ValueError: not today" in told.out
    assert "2 of 2 experiments failed" in told.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--methods", "tent"], 'unknown method in ablation "tent"; expected one of: rectified'),
        (["--batch-sizes", "0"], "batch size is 0"),
        (["--batch-sizes", "four"], '"four"; expected integers such as 4,2,1'),
        (["--images", "1,2"], '"1,2"; expected an integer of 1 or more'),
        (["--images", "0"], '"0"; expected an integer of 1 or more'),
        (["--images", "11"], "images is 11; expected at most 10"),
        (["--datasets", "cifar"], 'unknown dataset "cifar"; did you mean "cifar10'),
        (["--models", "embeded"], '"embeded"'),
        (["--seeds", "-1"], "seed is -1"),
        (["--workers", "0"], '"0"; expected an integer of 1 or more'),
    ],
)
def test_wrong_words_are_answered(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "ablation", *WORDS, "--out", str(tmp_path), *words]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "records").exists()


TABLE = TABLES["ablation"]
BLOCK = TABLE.blocks[1]
COMPARISON = compare(TABLE, BLOCK, TABLE.rows[1:], [64, 1], {("tbn", 64): 36.0, ("tema", 1): 50.0})


def test_the_plain_table_is_aligned_in_80_columns() -> None:
    errors = {(row.method, size): 100.0 for row in TABLE.rows for size in BLOCK.batch_sizes}
    whole = compare(TABLE, BLOCK, TABLE.rows, BLOCK.batch_sizes, errors)
    heading, *lines = [line for line in text_table(whole).splitlines() if "." in line]
    assert len(lines) == 3 * len(TABLE.rows)
    assert max(map(len, [heading, *lines])) < 80
    points = [[place for place, sign in enumerate(line) if sign == "."] for line in lines]
    assert points == [points[0]] * len(lines), "the points of a column stand below each other"


def test_markdown_is_a_table_with_the_papers_marks() -> None:
    lines = markdown_table(COMPARISON).splitlines()
    assert lines[0] == "**CIFAR-100-C**, error in percent"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert {len(row) for row in rows} == {6}
    assert rows[0][2:] == ["method", "64", "1", "Avg."]
    assert rows[5][:5] == ["paper", "TF", "TBN", "36.29", "98.91"]
    assert rows[6][:5] == ["paper", "TF", "TEMA", "**35.86**", "<u>52.75</u>"]
    assert rows[7][:5] == ["paper", "TF", "Ours", "<u>36.11</u>", "**39.30**"]
    assert rows[9] == ["difference", "TF", "TEMA", "-", "-2.75", "-"]


def test_on_a_terminal_the_best_is_bold_and_the_second_underlined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reproduce, "has_styles", lambda: True)
    shown = text_table(COMPARISON)
    assert "\x1b[1m 35.86\x1b[0m" in shown
    assert "\x1b[4m 36.11\x1b[0m" in shown
    assert "Erratum of the paper, CIFAR-100-C" in "".join(footnotes([COMPARISON], [record()]))


def test_the_papers_own_setup_carries_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With model and data on disk, and all images."""
    monkeypatch.setattr("realistic_tta.models.registry.on_disk", lambda _: Path("there"))
    monkeypatch.setattr("realistic_tta.benchmark.estimate.seconds", lambda each: [1.0] * len(each))
    words = ["--datasets", "cifar10-c", "--dry-run", "--methods", "tbn", "--out", tmp_path]
    told = told_by(capsys, "ablation", *words)
    assert "NOT COMPARABLE" not in told
    for size in (200, 64, 16, 4, 2, 1):
        asked = Experiment("wrn-28-10-standard", "cifar10-c", "continual", "tbn", size)
        assert asked.id in told
