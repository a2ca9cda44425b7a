"""`rtta results` on a terminal and elsewhere."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_subjects import record

from realistic_tta.benchmark.results import Results
from realistic_tta.cli.main import main
from realistic_tta.cli.results import print_list, print_pivots
from realistic_tta.cli.terminal import BARS, PLAIN_BARS, cut, sparks

RECORDS = [
    record("a", method="source", error=40.0, error_curve=((8, 30.0), (16, 50.0))),
    record("b", method="tbn", error=20.0, error_curve=((8, 10.0), (16, 30.0))),
    record("c", method="tema", error=10.0, error_curve=((8, 10.0), (16, 10.0))),
]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def on_terminal(show: Callable[..., None], *arguments: Any, **options: Any) -> list[str]:
    """The lines that a terminal gets."""
    with contextlib.redirect_stdout(Terminal()) as screen:
        show(*arguments, **options)
    return screen.getvalue().splitlines()


def test_on_a_terminal_the_best_is_bold_and_the_second_underlined() -> None:
    lines = on_terminal(print_pivots, RECORDS, "method", "batch_size", "error")
    assert lines[2:] == [
        "method  4",
        "source  40.00",
        "tbn     \033[4m20.00\033[0m",
        "tema    \033[1m10.00\033[0m",
        "bold: best of the column, underlined: second best",
    ]


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_styles_gets_signs(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert on_terminal(print_pivots, RECORDS, "method", "batch_size", "error")[3:] == [
        "source  40.00",
        "tbn     20.00+",
        "tema    10.00*",
        "* best of the column, + second best",
    ]


def test_other_pivots_have_no_marks(capsys: pytest.CaptureFixture[str]) -> None:
    """The longest run is not the worst of anything, nor is the largest batch."""
    print_pivots(RECORDS, "method", "batch_size", "seconds")
    print_pivots(RECORDS, "batch_size", "method", "error")
    assert not set("*+") & set(capsys.readouterr().out)


def test_a_list_says_once_what_is_the_same_in_all_and_has_spark_lines_where_they_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first, head, *lines = on_terminal(print_list, RECORDS)
    assert first == "3 records: scenario continual, dataset cifar10-c, model cifar10, seed 1"
    assert re.split(r"  +", head)[-4:] == ["error", "cost", "seconds", "error curve"]
    assert [line.split()[-1] for line in lines] == ["▅█", "▁▅", "▁▁"]
    assert all(len(line) <= 80 for line in lines)


def test_a_narrow_terminal_gets_no_spark_lines_unless_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert not set(BARS) & set("".join(on_terminal(print_list, RECORDS)))
    assert "▅█" in "".join(on_terminal(print_list, RECORDS, spark=True))


def test_a_long_message_is_cut_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    failed = record(status="failed", error=None, message="x" * 200)
    assert max(map(len, on_terminal(print_list, [failed])[1:])) == 60
    assert cut("x" * 200, 60) == "x" * 200


def test_spark_lines_pool_neighbours_and_share_one_scale() -> None:
    rising = [(place, float(place)) for place in range(200)]
    flat = [(place, 199.0) for place in range(200)]
    assert sparks([rising, flat], 8) == [BARS, BARS[-1] * 8]
    assert sparks([flat], 4) == [BARS[0] * 4]
    assert sparks([rising], 8, PLAIN_BARS) == [PLAIN_BARS]


def test_an_output_without_blocks_gets_plain_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in LANG=C: nothing that the encoding lacks is written."""
    for each in RECORDS:
        Results(tmp_path).write(each)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    assert main(["results", "--dir", str(tmp_path), "--spark"]) == 0
    assert raw.getvalue().decode("ascii").splitlines()[2].split()[-1] == "+@"


def test_json_is_whole_whatever_else_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in RECORDS:
        Results(tmp_path).write(each)
    assert main(["results", "--dir", str(tmp_path), "--json", "--spark"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["error_curve"] for each in found] == [
        [list(point) for point in each.error_curve] for each in RECORDS
    ]
