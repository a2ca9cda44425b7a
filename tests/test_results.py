"""Records: whole or not there, whoever writes; and what is made of them."""

from __future__ import annotations

import csv
import dataclasses
import errno
import io
import json
import multiprocessing
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from bench_subjects import PARTS, part, record

from realistic_tta.benchmark.exports import (
    error_in_first,
    flat,
    latest,
    pivot,
    to_csv,
    to_frame,
    write_parquet,
)
from realistic_tta.benchmark.results import FIELDS, SCHEMA, PartResult, Record, Results, write_file
from realistic_tta.benchmark.strict_json import KINDS
from realistic_tta.benchmark.traces import Trace
from realistic_tta.errors import ResultsError


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.write(record())
    assert Results(tmp_path).read() == [record()]
    assert results.get("a") == record()
    assert results.done("a")
    assert not results.done("b")


def test_filters_take_a_value_or_several(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for key, method, size in [("a", "tbn", 1), ("b", "tema", 1), ("c", "tema", 4)]:
        results.write(record(key, method=method, batch_size=size))
    assert [each.key for each in results.read(method="tema")] == ["b", "c"]
    assert [each.key for each in results.read(method=["tbn", "tema"], batch_size=1)] == ["a", "b"]
    with pytest.raises(ResultsError, match=r'unknown field "metod"; did you mean "method"\?'):
        results.read(metod="tema")


def test_a_failure_gives_way_to_a_result_and_never_the_reverse(tmp_path: Path) -> None:
    results = Results(tmp_path)
    failed = record(status="failed", message="boom", error=None)
    results.write(failed)
    assert not results.done("a")
    assert results.read() == [failed]
    results.write(record())
    assert results.read() == [record()]
    results.write(failed)
    results.write(record(error=99.0))
    assert results.read() == [record()]


@pytest.mark.parametrize("content", ['{"schema": 1}', "{}", "", "[1]"])
def test_a_folder_of_another_schema_is_refused_and_stays_as_it_was(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "schema.json").write_text(content)
    with pytest.raises(ResultsError, match=r"expected 3\. Use another folder"):
        Results(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["schema.json"]
    assert (tmp_path / "schema.json").read_text() == content


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.write(record())
    path = results.records / "a.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(ResultsError, match=r"a\.json is not a record of schema 3"):
        results.read()


def test_reading_where_nothing_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no results"):
        Results(tmp_path, create=False)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_file(tmp_path / "file", b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match=r"No space left on device.*no partial file"):
        write_file(tmp_path / "file", b"after")
    with pytest.raises(ResultsError):
        write_file(tmp_path / "other", b"after")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_write_that_the_disk_refuses_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real error of a full device, not one that the test made."""
    open_file = Path.open

    def open_on_full_disk(path: Path, mode: str) -> Any:
        path.touch()
        return open_file(Path("/dev/full"), mode.replace("x", "w"))

    monkeypatch.setattr(Path, "open", open_on_full_disk)
    with pytest.raises(ResultsError, match="No space left on device"):
        write_file(tmp_path / "file", b"x" * 100_000)
    assert not list(tmp_path.iterdir())


def _write_many(folder: str, writer: int) -> None:
    results = Results(Path(folder))
    for number in range(25):
        results.write(record(f"own{writer}x{number}", seed=writer, message="x" * 20_000))
        results.write(record(f"shared{number}", message="y" * 20_000))
        results.read(seed=writer)  # never meets half a record


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_many_processes_write_at_once_and_nothing_is_lost_or_torn(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # the writers need no torch of their own
    writers = [context.Process(target=_write_many, args=(str(tmp_path), n)) for n in range(4)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    found = Results(tmp_path).read()
    assert len(found) == 4 * 25 + 25
    for writer in range(4):
        assert len(Results(tmp_path).read(seed=writer, message="x" * 20_000)) == 25
    assert not list(Results(tmp_path).records.glob(".*"))


def test_every_field_is_documented() -> None:
    text = (Path(__file__).parents[1] / "docs/reference/result_fields.md").read_text()
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)) == FIELDS
    assert f"now {SCHEMA}" in text


def test_a_row_has_the_scalars_and_an_error_for_each_corruption() -> None:
    parts = (*PARTS, part("fog", 4, 8, 0))
    row = flat(record(parts=parts, hyperparameters={"b": 1, "a": 2}))
    assert row["error_fog"] == (25 + 0) / 2
    assert row["error_snow"] == 50
    assert json.loads(row["hyperparameters"]) == {"a": 2, "b": 1}
    assert set(FIELDS) - set(row) == {"parts", "error_curve"}


def test_the_error_in_the_first_images() -> None:
    """The mean over the parts."""
    parts = (
        PartResult("fog", 5, 100, 30, (8, 20, 30)),
        PartResult("snow", 5, 60, 10, (1, 5, 10)),
        PartResult("frost", 5, 20, 4, (2, 4, 4)),
    )
    long = record(parts=parts)
    assert error_in_first(long, 10) == pytest.approx((80 + 10 + 20) / 3)
    assert error_in_first(long, 50) == pytest.approx((40 + 10 + 20) / 3)
    assert flat(long)["error_in_first_50"] == error_in_first(long, 50)
    assert error_in_first(record(parts=()), 10) is None


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv([record("a"), record("b", parts=())]))))
    assert [row["key"] for row in rows] == ["a", "b"]
    assert float(rows[0]["seconds"]) == 0.1 + 0.2
    assert (rows[0]["error_fog"], rows[1]["error_fog"]) == ("25.0", "")


def test_a_pivot_averages_and_says_over_what() -> None:
    records = [
        record("a", method="tbn", batch_size=1, seed=1, error=10.0),
        record("b", method="tbn", batch_size=1, seed=2, error=20.0),
        record("c", method="tbn", batch_size=4, seed=1, error=5.0),
        record("d", method="tema", batch_size=4, seed=1, error=6.0),
        record("e", method="tema", batch_size=1, status="failed", error=None),
    ]
    table = pivot(records, "method", "batch_size")
    assert (table.rows, table.columns) == (["tbn", "tema"], [4, 1])
    assert table.cells == {("tbn", 1): 15.0, ("tbn", 4): 5.0, ("tema", 4): 6.0}
    assert table.averaged == {"seed": [1, 2]}
    with pytest.raises(ResultsError, match='did you mean "error"'):
        pivot(records, "method", "batch_size", "errr")
    with pytest.raises(ResultsError, match="scenario is not a number"):
        pivot(records, "method", "batch_size", "scenario")


def test_the_newest_record_of_an_experiment_counts() -> None:
    """A model that was exchanged gives another record of the same experiment."""
    old = record("a", experiment="x", finished="2024-01-01T00:00:00+00:00", error=1.0)
    new = record("b", experiment="x", finished="2024-01-02T00:00:00+00:00", error=2.0)
    assert latest([new, old]) == [new]
    assert pivot([new, old], "method", "batch_size").cells == {("tbn", 4): 2.0}


def test_without_pandas_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ResultsError, match=r"pip install 'realistic-tta\[results\]'"):
        to_frame([record()])
    with pytest.raises(ResultsError, match=r"pip install 'realistic-tta\[results\]'"):
        write_parquet([record()], tmp_path / "x.parquet")


def test_a_frame_has_the_rows_and_parquet_brings_it_back(tmp_path: Path) -> None:
    import pandas as pd

    records = [record("a"), record("b", status="failed", message="boom", error=None, parts=())]
    frame = to_frame(records)
    assert frame["key"].tolist() == ["a", "b"]
    assert frame["error_fog"].tolist()[0] == 25
    write_parquet(records, tmp_path / "x.parquet")
    read = pd.read_parquet(tmp_path / "x.parquet")
    assert read["error"].tolist()[0] == 37.5
    pd.testing.assert_frame_equal(read, frame)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", "<img>"),
        ("batch_size", 0),
        ("batch_size", True),
        ("error", "low"),
        ("error", 1e300),
        ("seed", 10**400),
        ("status", "perhaps"),
        ("key", "../../elsewhere"),
        ("hyperparameters", []),
        ("schema", 1),
        ("severity", None),
        ("parts", [["fog", 5, 0, 0, [0, 0, 0]]]),
        ("parts", [["fog", 5, 8, 9, [9, 9, 9]]]),
        ("parts", [[1, 5, 8, 2, [2, 2, 2]]]),
        ("parts", [["fog", 5, 8, 2]]),
        ("parts", [["fog", 5, 8, 2, [2, 2]]]),
        ("parts", [["fog", 5, 8, 2, [2, 1, 2]]]),
        ("parts", [["fog", 5, 8, 2, [-1, 2, 2]]]),
        ("parts", [["fog", 5, 8, 2, [0, 2, 3]]]),
        ("error_curve", [[1, "x"]]),
        ("method", "\ud800"),
    ],
)
def test_a_record_with_a_value_that_cannot_be_is_refused(name: str, value: object) -> None:
    fields = json.loads(record().to_json()) | {name: value}
    with pytest.raises(ResultsError, match="not a record of schema 3"):
        Record.from_json(json.dumps(fields))


def test_numbers_that_json_does_not_have_are_refused() -> None:
    text = record().to_json().replace("37.5", "NaN")
    with pytest.raises(ResultsError, match="not a record"):
        Record.from_json(text)


@pytest.mark.parametrize("kind", [Record, Trace])
def test_every_field_has_a_kind_that_is_checked(kind: type[Record | Trace]) -> None:
    """Else a new one would be taken as it comes. Tuples are checked where they are built."""
    kinds = {str(each.type) for each in dataclasses.fields(kind)}
    assert {each for each in kinds if not each.startswith("tuple")} <= set(KINDS)
