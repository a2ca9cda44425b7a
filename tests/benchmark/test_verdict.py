"""The verdict: its file can be run, and its table marks what is above a limit."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bench_subjects import record

from realistic_tta.benchmark.experiment import Experiment, read_grids
from realistic_tta.benchmark.results import PartResult, Record, Results

FOLDER = Path(__file__).parents[2] / "benchmarks" / "verdict"


@pytest.fixture(scope="module")
def verdict() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("verdict_table", FOLDER / "table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # NamedTuple looks its annotations up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def made(method: str, size: int, error: float, seed: int = 1, **changes: Any) -> Record:
    """A record of one part with 150 images, whose errors follow from `error`."""
    first, rest = round(error * 50 / 100), round(error * 100 / 100)
    part = PartResult("fog", 5, 150, first + rest, (first // 5, first, first + rest))
    name, *switches = method.split("+")
    fields: dict[str, Any] = {
        "method": name,
        "hyperparameters": dict.fromkeys(switches, True),
        "batch_size": size,
        "seed": seed,
        "images": 150,
        "error": error,
        "parts": (part,),
        "stream": f"{changes.get('scenario')}-{changes.get('severity')}-{seed}",
    }
    key = "-".join(map(str, (name, *switches, size, error, seed, *changes.values())))
    return record(key.replace(".", "_"), **(fields | changes))


def cells(verdict: ModuleType, records: list[Record], claim: str) -> dict[str, Any]:
    """The cells of the only row whose claim begins so."""
    (row,) = (r for r in verdict.claims(verdict.Verdict(records)) if r.claim.startswith(claim))
    return dict(row.cells)


def test_the_file_runs_every_stream_with_its_source() -> None:
    experiments: dict[Experiment, None] = {}
    for grid in read_grids(FOLDER / "verdict.toml"):
        experiments |= dict.fromkeys(grid.experiments())
    assert {each.seed for each in experiments} == {1, 2, 3}
    streams = {(each.dataset, each.model, each.plan) for each in experiments}
    with_source = {(e.dataset, e.model, e.plan) for e in experiments if e.method == "source"}
    assert streams == with_source
    continual = {(e.batch_size, e.method) for e in experiments if e.scenario == "continual"}
    for method in ("realistic", "rectified_tema", "adapt_bn"):
        assert {(size, method) for size in (200, 16, 1)} <= continual


def test_a_difference_is_paired_by_seed_with_its_standard_error(verdict: ModuleType) -> None:
    """Source 30, 40, 50; realistic worse by 1, 2, 3: 2 with 1 / sqrt(3)."""
    records = [
        made(method, 16, error, seed, scenario="clean", severity=5)
        for seed in (1, 2, 3)
        for method, error in (("source", 20.0 + 10 * seed), ("realistic", 20.0 + 11 * seed))
    ]
    cell = cells(verdict, records, "c.")["16"]
    assert cell.mean == pytest.approx(2)
    assert cell.error == pytest.approx(3**-0.5)
    assert str(cell) == "2.00 ± 0.58"
    (row,) = verdict.claims(verdict.Verdict(records))
    assert verdict.missed(row) == ["16"]
    assert row.source.mean == 40


def test_other_images_are_not_compared(verdict: ModuleType) -> None:
    records = [
        made("source", 16, 30.0, scenario="clean", severity=5, stream="one"),
        made("realistic", 16, 40.0, scenario="clean", severity=5, stream="other"),
    ]
    assert verdict.claims(verdict.Verdict(records)) == []


def test_batch_size_1_is_compared_in_the_first_images_and_after_them(verdict: ModuleType) -> None:
    """Error 40 % at 1 and 30 % at 200, in both: 10 points."""
    records = [made("realistic", 1, 40.0), made("realistic", 200, 30.0)]
    records += [made("realistic", 16, 99.0)]
    assert cells(verdict, records, "a. continual, first 50")["1"].mean == pytest.approx(10)
    assert cells(verdict, records, "a. continual, from image 50")["1"].mean == pytest.approx(10)


def test_parts_without_more_images_are_left_out_after_the_first(verdict: ModuleType) -> None:
    parts = (
        PartResult("fog", 5, 100, 30, (8, 20, 30)),
        PartResult("snow", 5, 60, 10, (1, 5, 10)),
        PartResult("frost", 5, 20, 4, (2, 4, 4)),
    )
    assert verdict.error_after_first(record(parts=parts), 50) == pytest.approx((20 + 50) / 2)
    assert verdict.error_after_first(record(parts=parts), 200) is None


def test_the_better_of_the_others_counts(verdict: ModuleType) -> None:
    records = [
        made("realistic", 16, 30.0),
        made("rectified_tema", 16, 33.0),
        made("adapt_bn", 16, 28.0),
        made("realistic", 1, 30.0),
        made("rectified_tema", 1, 33.0),
        made("adapt_bn", 1, 35.0),
    ]
    found = cells(verdict, records, "b.")
    assert {name: cell.mean for name, cell in found.items()} == {"16": 2, "1": -3}


def test_guard_and_label_smoothing_have_their_rows(verdict: ModuleType) -> None:
    records = [
        made("source", 16, 30.0),
        made("realistic+guard", 16, 30.4),
        made("realistic", 1, 30.0),
        made("realistic+smooth_labels", 1, 30.5),
    ]
    for delta in (None, 0.1):  # streams that differ in delta alone are ordered, not mixed
        records += [
            made("source", 16, 30.0, scenario="correlated", delta=delta, stream=str(delta)),
            made(
                "realistic+guard", 16, 31.0, scenario="correlated", delta=delta, stream=str(delta)
            ),
        ]
    rows = verdict.claims(verdict.Verdict(records))
    limits = {row.claim: (row.limit, verdict.missed(row)) for row in rows}
    assert limits["f. continual: realistic+guard - source"] == (0.5, [])
    assert limits["f. correlated, sorted: realistic+guard - source"] == (0.5, ["16"])
    assert limits["f. correlated, delta 0.1: realistic+guard - source"] == (0.5, ["16"])
    assert limits["g. continual: realistic+smooth_labels - realistic"] == (0.3, ["1"])


def test_the_table_marks_and_lists_the_misses(
    verdict: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = Results(tmp_path)
    for scenario in ("clean", "reset_each_shift"):
        for method, size, error in (("source", 16, 30.0), ("realistic", 16, 30.2)):
            results.write(made(method, size, error, scenario=scenario, severity=5))
        results.write(made("realistic", 1, 31.0, scenario=scenario, severity=5))
    monkeypatch.setattr(sys, "argv", ["table.py", str(tmp_path)])
    verdict.main()
    printed = capsys.readouterr().out
    assert "**c. clean: realistic - source**; at most 0.3\n" in printed
    assert "| cifar10 | 30.0 | - | 0.20 | 1.00 **miss** |" in printed
    assert "1 of 2 cells with a limit are above it" in printed
    assert "- c. clean: realistic - source, cifar10, batch size 1: 1.00, at most 0.3" in printed
    assert "| cifar10 | source | 16 | 30.00 | 30.00 | 30.00 |" in printed
