"""`rtta faults` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from realistic_tta.cli.main import main

FEW = ["faults", "--methods", "source,tbn+robust", "--faults", "nan,scaled", "--shares", "20"]
FEW += ["--images", "48", "--workers", "1", "--out"]


def test_it_prints_a_table_and_goes_on_with_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FEW, str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert "6 trials, 0 of them done" in first
    assert "| method | before | no fault | nan | scaled |" in first
    assert "| tbn, robust |" in first
    assert main([*FEW, str(tmp_path)]) == 0
    second = capsys.readouterr().out
    assert "6 trials, 6 of them done" in second
    assert first.splitlines()[1:] == second.splitlines()[1:]


def test_two_workers_find_what_one_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["faults", "--methods", "source", "--faults", "blank", "--shares", "20"]
    words += ["--images", "24", "--out"]
    tables = []
    for workers in ("1", "2"):
        assert main([*words, str(tmp_path / workers), "--workers", workers]) == 0
        tables.append([line for line in capsys.readouterr().out.splitlines() if "|" in line])
    assert tables[0] == tables[1]


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["faults", "--out", str(out), "--dry-run"]) == 0
    assert "476 trials, 0 of them done" in capsys.readouterr().out
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--shares", "many"], 'shares is "many"; expected numbers'),
        (["--methods", "tmea"], 'did you mean "tema"'),
        (["--faults", "blanc"], 'did you mean "blank"'),
        (["--workers", "0"], "workers is 0"),
    ],
)
def test_what_cannot_be_is_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["faults", "--dry-run", *words]) == 1
    assert told in capsys.readouterr().err
