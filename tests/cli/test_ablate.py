"""`rtta ablate` as a user runs it."""

from __future__ import annotations

from pathlib import Path
from statistics import stdev

import pytest
from bench_subjects import record, write_world

from realistic_tta.benchmark.ablation import PIECES, ablation, errors_of, rows_of
from realistic_tta.benchmark.results import Results
from realistic_tta.cli.main import main
from realistic_tta.methods.catalogue import METHODS

AXES = {"data": "cifar10-c-sample", "batch_size": [4, 1], "seed": [1, 2], "images": 2}


def test_every_piece_is_a_switch_of_its_method_that_is_on() -> None:
    for method, pieces in PIECES.items():
        settings = METHODS[method].settings_type()
        switches = {name for name, value in vars(settings).items() if value is True}
        left_out = [name for settings in pieces.values() for name in settings]
        assert set(left_out) == switches | {"mirror"}
        assert not any(value for settings in pieces.values() for value in settings.values())


def test_a_row_leaves_out_one_piece_and_nothing_else() -> None:
    cells = ablation("realistic", AXES)
    assert len(cells) == len(rows_of("realistic")) * 2
    (first, second) = cells["one memory", "continual", 4]
    assert first.settings == {"several_memories": False}
    assert (first.seed, second.seed) == (1, 2)
    assert cells["realistic", "continual", 4][0].settings == {}


def test_errors_are_averaged_over_seeds_with_their_spread() -> None:
    cells = ablation("realistic", AXES)
    cell = ("realistic", "continual", 1)
    other = ("source", "continual", 1)
    first, second = cells[cell]
    records = [
        record("a", experiment=first.id, error=20.0),
        record("b", experiment=second.id, error=23.0),
        record("c", experiment=cells[other][0].id, error=50.0),
    ]
    errors = errors_of(cells, records)
    assert list(errors) == [cell], "of the other a seed is missing"
    assert errors[cell].mean == 21.5
    assert errors[cell].spread == pytest.approx(stdev([20.0, 23.0]))


def test_the_table_is_run_once_and_then_only_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_world(tmp_path / "data", images=10)
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "data"))
    words = ["ablate", "realistic", "--batch-sizes", "2", "--seeds", "1", "--images", "2"]
    words += ["--setting", "continual", "--workers", "1", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    told = capsys.readouterr().out
    errors = {str(r.settings): r.error for r in Results(tmp_path / "out").read()}
    assert len(Results(tmp_path / "out").read()) == 10
    assert "error in percent: continual" in told
    line = next(line for line in told.splitlines() if line.startswith("one memory"))
    assert line.split()[-1] == f"{errors[str({'several_memories': False})]:.2f}"
    assert main(words) == 0
    assert line in capsys.readouterr().out
    assert len(Results(tmp_path / "out").read()) == 10
