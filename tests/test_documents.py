"""README and docs are true: their programs run, what they name exists."""

from __future__ import annotations

import csv
import importlib
import io
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from realistic_tta import METHODS
from realistic_tta.benchmark.data import DATA
from realistic_tta.benchmark.experiment import grid, read_grid
from realistic_tta.benchmark.paper_tables import TABLES
from realistic_tta.benchmark.scenarios import SETTINGS
from realistic_tta.cli.main import main
from realistic_tta.demo.display import results
from realistic_tta.demo.experiment import Setup
from realistic_tta.demo.words import headline

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def programs(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL)


def by_name(document: Path) -> str:
    return str(document.relative_to(ROOT))


NEEDS = ("timm", "torchvision", "onnxruntime", "onnxscript")  # of some pages only


@pytest.fixture
def a_world_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A page may write files, and add to the lists of data sets and settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "data"))
    data, settings = set(DATA), set(SETTINGS)
    yield
    for name in set(DATA) - data:
        del DATA[name]
    for name in set(SETTINGS) - settings:
        del SETTINGS[name]


@pytest.mark.usefixtures("a_world_apart")
@pytest.mark.parametrize("document", [d for d in DOCUMENTS if programs(d)], ids=by_name)
def test_programs_run_as_written(document: Path) -> None:
    """Those of one document in turn, each seeing what came before."""
    for package in NEEDS:
        if any(f"import {package}\n" in program for program in programs(document)):
            pytest.importorskip(package)
    names: dict[str, object] = {}
    for program in programs(document):
        with warnings.catch_warnings():
            if "torch.onnx.export" in program:
                warnings.simplefilter("ignore")  # the exporter's own
            exec(compile(program, by_name(document), "exec"), names)  # noqa: S102 - our own


def test_every_function_named_in_paper_to_code_exists() -> None:
    names = set(
        re.findall(r"`(realistic_tta[\w.]+)`", (ROOT / "docs/paper_to_code.md").read_text())
    )
    assert len(names) > 15
    for name in names:
        parts, found = name.split("."), None
        for length in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            break
        assert found is not None
        for part in parts[length:]:
            found = getattr(found, part)
        assert found.__doc__, name


def test_every_equation_of_the_paper_has_its_function() -> None:
    text = (ROOT / "docs/paper_to_code.md").read_text()
    for number in range(1, 8):
        assert re.search(rf"Eq\. (\d, )?{number}\b", text), f"Eq. {number}"
    for item in ("Proposition 1", "Proposition 2", "stage 2", "stage 3", "stage 4"):
        assert item in text


def test_links_between_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{by_name(document)}: {link}"


def test_readme_lists_the_methods() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert listed == list(METHODS)


def test_every_setting_is_described_and_the_grid_shown_is_one(tmp_path: Path) -> None:
    text = (ROOT / "docs/benchmark.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) == list(SETTINGS)
    shown = dict(re.findall(r"```(toml|yaml)\n(.*?)```", text, flags=re.DOTALL))
    for ending, content in shown.items():
        (tmp_path / f"grid.{ending}").write_text(content)
    assert len(grid(*read_grid(tmp_path / "grid.toml"))) == 2 * 2 * 3 * 3 * 3
    assert read_grid(tmp_path / "grid.yaml") == read_grid(tmp_path / "grid.toml")


def test_every_table_of_the_paper_is_described() -> None:
    text = (ROOT / "docs/reproduce.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) == list(TABLES)


@pytest.mark.parametrize("document", ["README.md", "docs/idea.md"])
def test_documents_show_what_the_command_prints(
    document: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["momentum", "--classes", "10", "--source-batch-size", "128", "--batch-size", "4"])
    printed = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert all(line in (ROOT / document).read_text() for line in printed)


def test_the_idea_is_told_with_figures_of_the_demo() -> None:
    rows = csv.DictReader(io.StringIO((ROOT / "docs/demo.csv").read_text()))
    measured = {(row["method"], int(row["batch_size"])): float(row["error"]) for row in rows}
    text = (ROOT / "docs/idea.md").read_text()
    shown = re.findall(r"^\|.*\(`(\w+)`\) \|(.*)\|$", text, flags=re.MULTILINE)
    assert {method for method, _ in shown} == {"source", "tbn", "tema", "rectified_tema"}
    for method, cells in shown:
        sizes = (64, 64, 64) if method == "source" else (64, 4, 1)
        expected = [f"{measured[method, size]:.1f}" for size in sizes]
        assert [cell.strip(" *") for cell in cells.split("|")] == expected


def test_readme_shows_what_the_demo_printed() -> None:
    """docs/demo.csv is what `rtta results --csv` wrote after a run of `rtta demo`."""
    rows = list(csv.DictReader(io.StringIO((ROOT / "docs/demo.csv").read_text())))
    setup = Setup()
    assert {row["experiment"] for row in rows} == {each.id for each in setup.experiments()}
    errors = {(row["method"], int(row["batch_size"])): float(row["error"]) for row in rows}
    errors |= {("source", size): errors["source", 64] for size in setup.batch_sizes}
    console = Console(width=80, file=io.StringIO(), highlight=False)
    console.print(results(errors, setup))
    console.print(headline(errors, setup))
    assert isinstance(console.file, io.StringIO)
    readme = [line.strip() for line in (ROOT / "README.md").read_text().splitlines()]
    for line in console.file.getvalue().splitlines():
        assert line.strip() in readme


def test_the_page_on_scale_shows_what_the_command_prints() -> None:
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, str(ROOT / "benchmarks/scaling.py")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.strip() in (ROOT / "docs/scaling.md").read_text()


def test_ci_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci/run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
