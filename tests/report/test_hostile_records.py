"""Records written by someone who means harm: shown as the texts they are, in a real browser."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from bench_subjects import part
from report.browser import browser, why_not
from report.made_up import made_up, write_trace

from realistic_tta.benchmark.exports import to_csv
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.cli.main import main

HARMS = (
    "<script>window.taken = 1</script>",
    "</script><script>window.taken = 2</script>",
    '"><img src=x onerror="window.taken = 3">',
    "' onmouseover='window.taken = 4",
    '<a href="javascript:window.taken = 5">a</a>',
    "line\u2028window.taken = 6;//\u2029",
    "\u202egnp.exe\u2066",
    "<!--<script>window.taken = 7",
    "%{x}<b>${window.taken = 8}</b>",
    "=cmd|' /C calc'!A0",
    "__proto__",
)


def hostile() -> list[Record]:
    """Each harm in every text that a record has."""
    good = made_up()[0]
    return [_with(harm, good, number) for number, harm in enumerate(HARMS)]


def _with(harm: str, good: Record, number: int) -> Record:
    names = ["method", "model", "dataset", "scenario", "order", "stream", "model_checksum"]
    names += ["device", "python", "torch", "package", "commit", "finished"]
    texts: dict[str, Any] = dict.fromkeys(names, harm)
    return dataclasses.replace(
        good,
        key=f"k{number}",
        experiment=f"k{number}",
        hyperparameters={harm: harm},
        parts=tuple(part(harm, 5, 10, 3) for _ in range(2)),
        **texts,
    )


def failures(records: list[Record]) -> list[Record]:
    return [
        dataclasses.replace(
            each,
            key=f"f{each.key}",
            experiment=f"f{each.key}",
            status="failed",
            message=each.method,
            error=None,
            parts=(),
            error_curve=(),
            cost=None,
        )
        for each in records
    ]


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_hostile_records_are_shown_and_run_nothing(tmp_path: Path) -> None:
    records = hostile()
    results = Results(tmp_path)
    for each in [*records, *failures(records)]:
        results.write(each)
    write_trace(tmp_path, "k0")
    traced = json.loads((tmp_path / "traces" / "k0.json").read_text())
    traced["layers"] = [HARMS[n % len(HARMS)] for n in range(len(traced["layers"]))]
    (tmp_path / "traces" / "k0.json").write_text(json.dumps(traced))
    out = tmp_path / "report.html"
    assert main(["report", "--dir", str(tmp_path), "--out", str(out)]) == 0
    with browser(tmp_path / "downloads") as page:
        page.open(out)
        labels = page.run(
            "return [...document.querySelectorAll('#group option')].map((o) => o.text)"
        )
        for place, _ in enumerate(labels):
            page.run(
                "at('group').selectedIndex = arguments[0]; at('group').dispatchEvent("
                "new Event('change'))",
                place,
            )
            page.show_all()
            page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            text = page.run("return document.body.textContent")
            shown = page.run("return group().methods[0]")
            assert shown in text, "shown as it was written"
            harm = shown.split(" (")[0]
            assert harm in page.run("return document.getElementById('failed').textContent")
            assert page.run("return window.taken ?? null") is None
            assert (
                page.run("return document.querySelectorAll('img, [onerror], [onmouseover]').length")
                == 0
            )
            assert page.run("return document.querySelectorAll('a[href^=javascript]').length") == 0
            assert page.run("return ({}).polluted ?? null") is None
        assert len(labels) == len(HARMS)


def test_a_formula_is_a_text_in_the_csv() -> None:
    """A spreadsheet would run it on the machine of whoever opens the file."""
    records = [record for record in hostile() if record.method.startswith("=")]
    (row,) = csv.DictReader(io.StringIO(to_csv(records)))
    assert row["method"] == "'" + records[0].method
    assert not any(value.startswith(("=", "+", "@")) for value in row.values())
