"""`rtta plot` as a user runs it: from a folder of results to files that never differ."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from bench_subjects import record, write_world
from figure_subjects import momentum_runs, runs, trace
from safetensors.torch import save_file
from subjects import residual

from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.traces import write_trace
from realistic_tta.cli.main import main
from realistic_tta.report.catalog import FIGURES, ONE_FOR_ALL, draw
from realistic_tta.report.style import write_figure

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    results = Results(tmp_path / "stored")
    for each in [*runs(), *momentum_runs()]:
        results.write(each)
        write_trace(trace(each.key), results.folder)
    results.write(record("broken", status="failed", message="boom", error=None))
    return results.folder


def test_all_figures_are_drawn_in_both_formats(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["plot", "--dir", str(stored), "--out", str(out), "--formats", "png,svg"]) == 0
    told = capsys.readouterr().out
    assert "not drawn" not in told
    files = sorted(path.name for path in out.iterdir())
    assert sorted(Path(line).name for line in told.splitlines()) == files
    for figure in FIGURES:
        ending = "" if figure in ONE_FOR_ALL else ".cifar10-c.cifar10.continual.20-images"
        assert (out / f"{figure}{ending}.png").read_bytes().startswith(b"\x89PNG")
        parsed = ET.parse(out / f"{figure}{ending}.svg")  # noqa: S314 - our own file
        assert parsed.getroot().tag.endswith("svg")


def test_without_a_name_what_cannot_be_drawn_is_said_and_the_rest_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(tmp_path)
    for each in runs():
        results.write(each)
    assert main(["plot", "--dir", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    not_drawn = re.findall(r"^not drawn: (\w+) needs", told, flags=re.MULTILINE)
    assert sorted(not_drawn) == ["layers", "momentum_analysis"]
    assert len(list((tmp_path / "figures").glob("*.png"))) == len(FIGURES) - 2


def test_filters_choose_the_records(stored: Path, tmp_path: Path) -> None:
    words = ["plot", "error_over_stream", "--dir", str(stored), "--out", str(tmp_path / "few")]
    assert main([*words, "--methods", "tbn,tema", "--batch-sizes", "4"]) == 0
    (few,) = (tmp_path / "few").iterdir()
    records = Results(stored).read(method=["tbn", "tema"], batch_size=[4])
    ((_, figure),) = draw("error_over_stream", records, trace)
    write_figure(figure, tmp_path / "expected.png")
    assert few.read_bytes() == (tmp_path / "expected.png").read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["eror_by_batch_size"], 'unknown figure "eror_by_batch_size"; did you mean "error_by'),
        (["--formats", "pgn"], 'unknown format "pgn"; did you mean "png"?'),
        (["--batch-sizes", "four"], '"four"; expected integers such as 4,2,1'),
        (["layers", "--methods", "tbn"], "layers needs a trace of rectified_tema; `rtta bench "),
        (["layers", "--scenarios", "mixed"], "layers needs finished experiments; `rtta bench"),
        (["--dir", "nowhere"], "nowhere: no results"),
    ],
)
def test_wrong_words_are_answered(
    words: list[str], told: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", "--dir", str(stored), *words]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert ("creates that" in err) == (f"(with --out {stored})" in err)
    assert not (stored / "figures").exists()


def test_class_diversity_needs_no_results(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["plot", "class_diversity", "--dir", str(tmp_path / "nowhere"), "--out", str(out)]
    assert main(words) == 0
    assert [path.name for path in out.iterdir()] == ["class_diversity.png"]


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_records_give_the_same_bytes_whatever_the_users_style(
    name: str, ending: str, tmp_path: Path
) -> None:
    records = [*runs(), *momentum_runs()]
    ((_, first),) = draw(name, records, trace)
    write_figure(first, tmp_path / f"first.{ending}")
    with mpl.rc_context({"font.size": 20, "axes.grid": False, "lines.linewidth": 9}):
        ((_, second),) = draw(name, records[::-1], trace)
        write_figure(second, tmp_path / f"second.{ending}")
    assert (tmp_path / f"first.{ending}").read_bytes() == (
        tmp_path / f"second.{ending}"
    ).read_bytes()


def test_every_figure_is_shown_in_the_documents() -> None:
    text = (ROOT / "docs/reference/figures.md").read_text()
    shown = re.findall(r"^## `(\w+)`$", text, flags=re.MULTILINE)
    assert sorted(shown) == sorted(FIGURES)
    pictures = re.findall(r"!\[[^\]]+\]\(../images/figures/(\w+)\.png\)", text)
    assert sorted(pictures) == sorted(FIGURES)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "dataset"
    write_world(folder, images=10)
    save_file(residual().state_dict(), folder / "models" / "resnet-20.safetensors")
    monkeypatch.setenv("RTTA_DATA", str(folder))
    return folder


BENCH = ["bench", "--models", "resnet-20", "--images", "4", "--workers", "1"]


@pytest.mark.usefixtures("world")
def test_a_traced_benchmark_can_be_drawn_and_old_records_get_their_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = [*BENCH, "--methods", "tbn,tema,rectified_tema", "--batch-sizes", "4,2"]
    assert main([*words, "--out", str(out)]) == 0
    before = {path.name: path.read_bytes() for path in (out / "records").iterdir()}
    assert not (out / "traces").exists()
    assert main([*words, "--out", str(out), "--traces"]) == 0
    assert {path.name for path in (out / "traces").iterdir()} == set(before)
    assert {path.name: path.read_bytes() for path in (out / "records").iterdir()} == before
    capsys.readouterr()
    assert main([*words, "--out", str(out), "--traces"]) == 0
    assert "6 of 6 done" in capsys.readouterr().out
    assert main(["plot", "error_by_batch_size", "layers", "--dir", str(out)]) == 0
    assert len(list((out / "figures").iterdir())) == 2


@pytest.mark.usefixtures("world")
def test_a_benchmark_of_momenta_can_be_drawn(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--methods", "source,tema", "--batch-sizes", "4,2", "--momentums", "auto,1,0.1"]
    assert main([*BENCH, *words, "--out", str(out)]) == 0
    records = Results(out).read()
    assert [each.hyperparameters for each in records if each.method == "source"] == [{}, {}]
    hyperparameters = [each.hyperparameters for each in records if each.method == "tema"]
    assert [hyperparameters.count(each) for each in ({}, {"momentum": 1.0}, {"momentum": 0.1})] == [
        2
    ] * 3
    assert main(["plot", "momentum_analysis", "--dir", str(out)]) == 0
    assert (out / "figures" / "momentum_analysis.png").exists()


@pytest.mark.parametrize(
    ("momentum", "told"),
    [
        ("fast", '"fast"; expected values such as auto,1,0.1'),
        ("0", "momentum is 0.0; expected a number from 1e-06 to 1"),
    ],
)
@pytest.mark.usefixtures("world")
def test_a_momentum_that_cannot_be_is_answered(
    momentum: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--methods", "tema", "--momentums", momentum, "--out", str(tmp_path / "out")]
    assert main([*BENCH, *words]) == 2
    assert told in capsys.readouterr().err
