"""The report page in a real browser, opened from disk."""

from __future__ import annotations

import csv
import dataclasses
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from report.browser import Page, browser, why_not
from report.made_up import COSTS, SIZES, made_up, write_trace
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from realistic_tta.benchmark.exports import flat
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.cli.main import main

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    # selenium leaves its sockets to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HOSTILE = "</script><script>document.title = 'taken'</script><img src=x onerror=alert(1)>\"&,\n"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Two seeds, two hyperparameters, one failure with a hostile message."""
    found = made_up(seeds=2, scenarios=("continual", "mixed"))
    wrong = dataclasses.replace(
        found[0], key="bad", experiment="bad", method="tema", status="failed", message=HOSTILE
    )
    return [*found, dataclasses.replace(wrong, error=None, parts=(), error_curve=(), cost=None)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> Path:
    folder = tmp_path_factory.mktemp("store")
    results = Results(folder)
    for record in records:
        results.write(record)
    write_trace(folder, next(r.key for r in records if r.method == "rectified_tema"))
    assert main(["report", "--dir", str(folder), "--out", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("downloads")) as page:
        yield page


@pytest.fixture
def page(window: Page, report: Path) -> Page:
    window.open(report)
    window.show_all()
    return window


def test_it_opens_without_a_console_error_and_without_a_request(window: Page, report: Path) -> None:
    window.log("performance")
    window.log("browser")
    window.open(report)
    window.show_all()
    events = [json.loads(e["message"])["message"] for e in window.log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert report.as_uri() in asked, "the log was not kept"
    assert {address.split(":")[0] for address in asked} <= {"file", "data", "blob"}
    assert [url for url in asked if url.startswith("file")] == [report.as_uri()]
    assert window.run("return performance.getEntriesByType('resource').length") == 0
    assert window.log("browser") == []


def test_a_hostile_message_is_shown_as_text_and_does_nothing(page: Page) -> None:
    assert page.run("return document.title").startswith("Test-time adaptation")
    assert HOSTILE in page.run("return document.getElementById('failed').textContent")
    assert page.run("return document.querySelectorAll('img').length") == 0


def means(records: list[Record], scenario: str) -> dict[tuple[str, int], float]:
    cells: dict[tuple[str, int], list[float]] = defaultdict(list)
    for each in records:
        if each.scenario == scenario and each.error is not None:
            cells[each.method, each.batch_size].append(each.error)
    return {cell: fmean(errors) for cell, errors in cells.items()}


def test_the_table_holds_the_means_of_the_records(page: Page, records: list[Record]) -> None:
    head, *rows = page.rows("ours")
    assert head == ["method", *map(str, SIZES), "mean"]
    expected = means(records, "continual")
    shown = {
        (method, size): cell.split(" ")[0]
        for method, *cells in rows
        for size, cell in zip(SIZES, cells, strict=False)
    }
    for cell, error in expected.items():
        assert shown[cell] == f"{error:.2f}"
    assert shown["tema", 200] == "failed"
    column = {method: expected[method, 1] for method in COSTS}
    best, second = sorted(column, key=lambda method: column[method])[:2]
    marked = {row[0]: row[SIZES.index(1) + 1] for row in rows}
    assert marked[best].endswith("(best)")
    assert marked[second].endswith("(second best)")


def test_the_papers_table_stands_beside_it(page: Page) -> None:
    rows = {row[0]: row[1:] for row in page.rows("paper")}
    assert rows["tent"][:6] == ["19.55", "26.32", "74.07", "85.07", "88.69", "90.00"]
    page.click("#with-paper")
    lines = page.run("return document.getElementById('plot-sizes').data.length")
    assert lines == 2 * len(page.rows("paper")[1:])


def test_a_method_can_be_taken_out_of_the_plots_and_put_back(page: Page) -> None:
    every = set(COSTS)
    assert set(page.lines("plot-curve")) == every
    page.click("input[value=tent]")
    for plot in ("plot-sizes", "plot-curve", "plot-cost"):
        assert set(page.lines(plot)) - {"tema"} == every - {"tent"}
    assert "tent" not in {row[0] for row in page.rows("corruptions")}
    page.click("#none")
    assert page.lines("plot-curve") == {}
    page.click("#all")
    assert set(page.lines("plot-curve")) == every


def choose(page: Page, control: str, text: str) -> None:
    for option in page.driver.find_elements("css selector", f"#{control} option"):
        if text in option.text:
            option.click()
            return
    raise AssertionError(f"{control} offers no {text}")


def test_batch_size_and_setting_change_what_is_plotted(page: Page, records: list[Record]) -> None:
    choose(page, "group", "mixed")
    choose(page, "size", "16")
    page.show_all()
    x, y = page.lines("plot-cost")["sar"]
    few = [
        r
        for r in records
        if (r.method, r.batch_size, r.scenario) == ("sar", 16, "mixed") and r.cost
    ]
    assert x == pytest.approx([fmean(r.cost or 0 for r in few)], rel=1e-12)
    assert y == pytest.approx([fmean(r.error or 0 for r in few)], rel=1e-12)
    page.click("#smooth")
    _, error_curve = page.lines("plot-curve")["sar"]
    error_curves = [[error for _, error in each.error_curve] for each in few]
    expected = [fmean(points) for points in zip(*error_curves, strict=True)]
    assert error_curve == pytest.approx(expected, abs=0.051), "rounded to one decimal"
    heat = {row[0]: row[1:] for row in page.rows("corruptions")}
    assert heat["sar"][0] == f"{fmean(r.parts[0].error for r in few):.1f}"


def test_the_layers_are_shown_where_they_were_traced(page: Page) -> None:
    assert page.run("return document.querySelectorAll('#trace option').length") == 1
    layers = page.wait("return document.getElementById('plot-source_weight')?.data?.[0].z")
    assert len(layers) == 13
    assert layers[12][0] == pytest.approx(0.5 * 12 / 13, rel=1e-2)
    choose(page, "group", "mixed")
    assert page.run("return document.getElementById('layers').hidden")


def test_the_csv_has_the_records(page: Page, records: list[Record], tmp_path: Path) -> None:
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    page.click("#csv")
    for _ in range(200):
        if (tmp_path / "results.csv").exists():
            break
        time.sleep(0.05)
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = {row["key"]: row for row in csv.DictReader(file)}
    assert len(rows) == len(records)
    for record in records:
        expected = flat(record)
        found = rows[record.key]
        assert set(expected) <= set(found)
        assert {name: _value(found[name], value) for name, value in expected.items()} == expected


def _value(text: str, like: Any) -> Any:
    if like is None:
        return None if text == "" else text
    if isinstance(like, bool):
        return {"true": True, "false": False}[text]
    return type(like)(text)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_window(
    window: Page, report: Path, width: int, dark: bool
) -> None:
    window.open(report, width, 740, dark=dark)
    window.show_all()
    window.click("summary")
    assert window.run("return document.documentElement.scrollWidth") == width
    paper = window.run("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark


def test_every_control_is_reached_and_used_by_keyboard(page: Page) -> None:
    """From the top by Tab alone; a focused control is outlined, and Space takes a method out."""
    reached = []
    for _ in range(40):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        name = page.run("return document.activeElement.id || document.activeElement.value")
        reached.append(name)
        if name == "tent":
            outline = "return getComputedStyle(document.activeElement).outlineStyle"
            assert page.run(outline) == "solid"
            ActionChains(page.driver).send_keys(Keys.SPACE).perform()
            break
    assert reached[1:6] == ["group", "size", "csv", "all", "none"]
    assert "tent" not in page.lines("plot-curve")


def test_controls_and_tables_have_names(page: Page) -> None:
    unnamed = page.run(
        "return [...document.querySelectorAll('input, select')].filter((e) => !e.labels.length)"
        ".concat([...document.querySelectorAll('table')].filter((t) => !t.caption)).length"
    )
    assert unnamed == 0
    assert page.run("return document.querySelectorAll('th:not([scope])').length") == 0
