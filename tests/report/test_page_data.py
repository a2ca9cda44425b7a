"""What the page says and holds; no browser needed."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from bench_subjects import record
from report.made_up import made_up, write_trace

from realistic_tta.benchmark import traces
from realistic_tta.benchmark.paper_tables import paper_errors
from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.traces import Trace, TracePoint
from realistic_tta.cli.main import main
from realistic_tta.errors import ResultsError
from realistic_tta.methods.registry import METHODS
from realistic_tta.report.headline import headline
from realistic_tta.report.page import embedded, page
from realistic_tta.report.page_data import POINTS, command, page_data, read_layers

HEADLINES: list[tuple[dict[tuple[str, int], float], list[str]]] = [
    ({}, ["No experiment has finished."]),
    ({("source", 4): 43.5}, ["The source model has 43.5 % error; no method was measured."]),
    (
        {("tema", 200): 20.0, ("tema", 1): 25.0},
        [
            "Lowest error: 20.0 % at batch size 200 (tema), 25.0 % at batch size 1 (tema).",
            "The source model was not measured.",
        ],
    ),
    (
        {("source", 4): 40.0, ("tema", 4): 30.0},
        [
            "At batch size 4, tema changes the error from 40.0 to 30.0 %.",
            "No method is worse than the source model at any batch size measured.",
        ],
    ),
    (
        {("source", 4): 40.0, ("tbn", 4): 60.0},
        [
            "No method beats the source model (40.0 % error); closest: tbn 60.0 %.",
            "Worse than the source model: tbn at 4.",
        ],
    ),
    (
        {("source", 200): 40.0, ("tbn", 200): 20.0, ("tbn", 4): 50.0, ("tbn", 1): 90.0},
        [
            (
                "At batch size 200, tbn changes the error from 40.0 to 20.0 %; "
                "at batch size 1 no method beats the source model (40.0 %)."
            ),
            "Worse than the source model: tbn from 4 down.",
        ],
    ),
    (
        {("source", 4): 40.0, ("tbn", 4): 41.0, ("tema", 4): 30.0, ("lame", 4): 39.0},
        [
            "At batch size 4, tema changes the error from 40.0 to 30.0 %.",
            "Worse than the source model: tbn at 4.",
            "Never worse: tema, lame.",
        ],
    ),
]


@pytest.mark.parametrize(("errors", "told"), HEADLINES)
def test_the_headline_says_what_was_measured_and_no_more(
    errors: dict[tuple[str, int], float], told: list[str]
) -> None:
    assert headline(errors) == told


class Scripts(HTMLParser):
    """The page as a browser cuts it up: the text of every script element."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.texts = False, [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag == "script":
            self.inside = True
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[-1] += data


HOSTILE = ["</script><script>alert(1)</script>", "<!--<script>", "]]>&amp;'\"\\ \u2028\u0000 $data"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_as_it_was_and_ends_no_element(text: str, tmp_path: Path) -> None:
    hostile = record(method=text, message=text, model=text, hyperparameters={"x": text})
    written = page([hostile], tmp_path, "0.1.0")
    parser = Scripts()
    parser.feed(written)
    _, data, *programs = parser.texts
    found = json.loads(data)
    row = dict(zip(found["fields"], found["rows"][0], strict=True))
    assert (row["method"], row["message"], row["hyperparameters"]) == (text, text, {"x": text})
    assert len(programs) == 3, "ours, the library, and the start of the plots"
    assert text not in re.sub(r"<script.*?</script>", "", written, flags=re.DOTALL)


def test_numbers_are_embedded_to_the_last_bit() -> None:
    found = json.loads(embedded(page_data([record()], {})))
    assert found["rows"][0][found["fields"].index("seconds")] == 0.1 + 0.2
    assert found["parts"] == [[[0, 5, 8, 2], [1, 5, 8, 4]]]
    assert found["error_curves"] == [[0, [25.0, 50.0]]]
    assert found["positions"] == [[8, 16]]


def test_groups_do_not_mix_what_cannot_be_compared() -> None:
    records = [
        record("a"),
        record("b", seed=2, error=40.0),
        record("c", hyperparameters={"momentum": 0.1}),
        record("d", scenario="mixed"),
        record("e", images=None),
        record("f", delta=0.1, order="file"),
        record("g", severity=1),
    ]
    groups = page_data(records, {})["groups"]
    assert [group["label"] for group in groups] == [
        "continual · cifar10-c · cifar10 · 8 images",
        "mixed · cifar10-c · cifar10 · 8 images",
        "continual · cifar10-c · cifar10",
        "continual · cifar10-c · cifar10 · 8 images · order file · delta 0.1",
        "continual · cifar10-c · cifar10 · 8 images · severity 1",
    ]
    assert groups[0]["methods"] == ["tbn", "tbn (momentum=0.1)"]
    assert groups[0]["table"]["errors"] == [[38.75, 38.75], [37.5, 37.5]]
    assert groups[0]["records"] == [0, 1, 2]


def test_the_newest_record_of_an_experiment_is_shown_and_all_are_in_the_data() -> None:
    old = record("a", experiment="x", finished="2024-01-01T00:00:00+00:00", error=1.0)
    new = record("b", experiment="x", finished="2024-01-02T00:00:00+00:00", error=2.0)
    data = page_data([new, old], {})
    assert len(data["rows"]) == 2
    assert data["groups"][0]["table"]["errors"] == [[2.0, 2.0]]


def test_a_mean_is_given_of_whole_rows_only() -> None:
    records = [record("a"), record("b", batch_size=1), record("c", method="tema")]
    (group,) = page_data(records, {})["groups"]
    assert group["table"]["errors"] == [[37.5, 37.5, 37.5], [37.5, None, None]]


def test_the_papers_figures_are_those_of_its_tables() -> None:
    """Against the file, read another way: every main-table cell is found again."""
    path = Path(__file__).parents[2] / "src/realistic_tta/assets/paper_results.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["batch_size"] != "avg"]
    main_tables = [row for row in rows if row["table"] != "ablation"]
    assert len(main_tables) > 300
    for row in main_tables:
        found = paper_errors(row["dataset"].replace("_", "-"), row["scenario"])
        assert found[row["method"], int(row["batch_size"])] == float(row["error_percent"])
    assert paper_errors("cifar10-c", "episodic") == {}


def test_our_methods_and_sizes_are_looked_up_in_the_paper() -> None:
    few = [record("a", method="tent"), record("b", dataset="cifar10-c-sample", method="own")]
    with_paper, without = page_data(few, {})["groups"]
    assert with_paper["paper"]["errors"] == [[85.07, 85.07]]
    assert with_paper["paper"]["sizes"] == [4]
    assert without["paper"] is None


def test_the_command_measures_the_group_again() -> None:
    few = [record("a"), record("b", batch_size=1, seed=3), record("c", method="x y; rm")]
    assert command(few) == (
        "rtta bench --datasets cifar10-c --models cifar10 --scenarios continual "
        "--methods 'tbn,x y; rm' --batch-sizes 4,1 --seeds 3,1 --images 8"
    )


def test_traces_are_thinned_and_kept_within_their_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in "abc":
        write_trace(tmp_path, key, layers=5)
    records = [record(key) for key in "abcd"]
    layers, left_out = read_layers(records, tmp_path)
    assert (set(layers), left_out) == ({"a", "b", "c"}, 0)
    assert len(layers["a"]["images"]) == POINTS
    assert [len(row) for row in layers["a"]["divergence"]] == [POINTS] * 5
    room = 2 * len(json.dumps(layers["a"])) + 500
    monkeypatch.setattr("realistic_tta.report.page_data.BUDGET", room)
    layers, left_out = read_layers(records, tmp_path)
    assert (set(layers), left_out) == ({"a", "b"}, 1)
    (tmp_path / "traces/a.json").write_text("{}")
    with pytest.raises(ResultsError, match=r"a\.json is not a trace"):
        read_layers(records, tmp_path)


def test_a_trace_without_weights_and_divergences_is_not_shown(tmp_path: Path) -> None:
    nothing = Trace("a", ("first",), (TracePoint(8, (None,), (None,)),))
    traces.write_trace(nothing, tmp_path)
    assert traces.trace_file(record("a").key, tmp_path).exists()
    assert read_layers([record("a")], tmp_path) == ({}, 0)


def test_two_thousand_results_weigh_less_than_six_megabytes(tmp_path: Path) -> None:
    records = [
        dataclasses.replace(each, key=f"{place:016x}")
        for place, each in enumerate(made_up(seeds=16, scenarios=("continual", "mixed")))
    ][:2000]
    assert len(records) == 2000
    size = len(page(records, tmp_path, "0.1.0").encode())
    assert size < 6_000_000, size


def test_the_command_filters_and_says_where_the_page_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(tmp_path)
    for key, method in [("a", "tbn"), ("b", "tema")]:
        results.write(record(key, method=method))
    out = tmp_path / "there" / "page.html"
    assert main(["report", "--dir", str(tmp_path), "--method", "tema", "--out", str(out)]) == 0
    assert f"1 records in {out}" in capsys.readouterr().out
    assert "<h1" in out.read_text()
    assert main(["report", "--dir", str(tmp_path), "--methods", "x", "--out", str(out)]) == 2
    assert "no record matches" in capsys.readouterr().err
    assert main(["report", "--dir", str(tmp_path / "nowhere"), "--out", str(out)]) == 2
    assert "no results" in capsys.readouterr().err


def test_every_methods_marker_can_be_drawn_beside_its_name() -> None:
    """As realistic's once could not: its name stood in the legend without a sign."""
    folder = files("realistic_tta.report")
    states = folder.joinpath("page_state.js").read_text()
    looks = re.findall(r'\n  (\w+): \["#\w+", "#\w+", "([\w-]+)"', states)
    drawn = re.findall(r'"?([\w-]+)"?: "M', folder.joinpath("page.js").read_text())
    assert {name for name, _ in looks} == set(METHODS)
    assert {marker for _, marker in looks} <= set(drawn)
