"""README and docs are true: their programs run, and the names in them exist."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import realistic_tta
from realistic_tta import METHODS, Health
from realistic_tta.benchmark.datasets import DATASETS
from realistic_tta.benchmark.experiment import AXES, read_grids
from realistic_tta.benchmark.paper_tables import TABLES, paper_errors
from realistic_tta.benchmark.results import FIELDS, SCHEMA
from realistic_tta.benchmark.scenarios import SCENARIOS
from realistic_tta.cli.main import main
from realistic_tta.report.catalog import FIGURES

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
REGISTRIES: tuple[dict[str, Any], ...] = (DATASETS, SCENARIOS, METHODS)
NEEDS = ("timm", "torchvision", "onnxruntime", "onnxscript")  # of some pages only


PROGRAM = re.compile(r"```python\n(.*?)```\n(?:\n```\n(.*?)```\n)?", flags=re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+")


def programs(document: Path) -> list[str]:
    return [program for program, _ in PROGRAM.findall(document.read_text())]


def by_name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def first_column(name: str) -> list[str]:
    """The code in the first column of all tables of a document."""
    cells = re.findall(r"^\| (`[^|]*) \|", (ROOT / name).read_text(), flags=re.MULTILINE)
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


@pytest.fixture
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A page may write files, and add to the registries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "data"))
    before = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, content in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(content)


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("document", [d for d in DOCUMENTS if programs(d)], ids=by_name)
def test_programs_run_as_written(document: Path) -> None:
    """The programs of one document run in turn, each with the names of those before.

    A block without a language after a program shows what it prints. Numbers may differ by two
    points: other processors round differently.
    """
    for package in NEEDS:
        if any(f"import {package}\n" in program for program in programs(document)):
            pytest.importorskip(package)
    names: dict[str, object] = {}
    for program, shown in PROGRAM.findall(document.read_text()):
        printed = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            if "torch.onnx.export" in program:
                warnings.simplefilter("ignore")  # the exporter's own
            code = compile(program, by_name(document), "exec", dont_inherit=True)
            exec(code, names)  # noqa: S102 - our own
        if shown:
            assert NUMBER.sub("", printed.getvalue()) == NUMBER.sub("", shown)
            found, expected = (
                [*map(float, NUMBER.findall(t))] for t in (printed.getvalue(), shown)
            )
            assert found == pytest.approx(expected, abs=2)


def test_every_function_named_in_paper_to_code_exists() -> None:
    names = set(
        re.findall(
            r"`(realistic_tta[\w.]+)`", (ROOT / "docs/explanation/paper_to_code.md").read_text()
        )
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
    text = (ROOT / "docs/explanation/paper_to_code.md").read_text()
    for number in range(1, 8):
        assert re.search(rf"Eq\. (\d, )?{number}\b", text), f"Eq. {number}"
    for item in ("Proposition 1", "Proposition 2", "stage 2", "stage 3", "stage 4"):
        assert item in text


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (document.parent / link).exists(), link
    for path in re.findall(r"`((?:tests|tools|benchmarks|examples)/[\w/]+\.py)`", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert (ROOT / path).exists() or (ROOT / "src/realistic_tta" / path).exists(), path


def test_every_picture_is_shown_somewhere() -> None:
    shown = {
        (document.parent / link).resolve()
        for document in DOCUMENTS
        for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", document.read_text())
    }
    assert shown == {path.resolve() for path in ROOT.glob("docs/images/**/*.png")}


def test_readme_lists_the_methods() -> None:
    assert first_column("README.md") == list(METHODS)


def test_every_option_is_described() -> None:
    accepted = set(inspect.signature(realistic_tta.adapt).parameters)
    beside = {"model", "method", "preset", "nonfinite_output", "hyperparameters"}
    assert set(first_column("docs/how_to/deploy.md")) == accepted - beside


@pytest.mark.parametrize("method", METHODS)
def test_every_hyperparameter_is_described(method: str) -> None:
    text = (ROOT / "docs/explanation/methods.md").read_text()
    assert f"**{method}" in text or re.search(rf"^##+ {method}\b", text, flags=re.MULTILINE)
    described = re.findall(r"`(\w+)(?:=[^`]*)?`", text)
    assert set(METHODS[method].settings_type.names()) <= {*described, "statistics_momentum"} | {
        "temperature",
        "key_momentum",
    }


def test_every_scenario_and_axis_is_described_and_the_file_shown_is_read(tmp_path: Path) -> None:
    options = [f"--{name.replace('_', '-')}" for name in AXES] + ["--momentums"]
    column = first_column("docs/how_to/compare_methods.md")
    assert column[len(options) :] == list(SCENARIOS)
    assert set(column[: len(options)]) == set(options)
    text = (ROOT / "docs/how_to/compare_methods.md").read_text()
    (shown,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "grid.toml").write_text(shown)
    (read,) = read_grids(tmp_path / "grid.toml")
    assert len(read.experiments()) == 2 * 2 * 3 * 3 * 3


def test_every_field_of_a_record_is_described() -> None:
    assert tuple(first_column("docs/reference/result_fields.md")) == FIELDS
    assert f"| `schema` | {SCHEMA} |" in (ROOT / "docs/reference/result_fields.md").read_text()


def test_every_field_of_health_is_described() -> None:
    assert first_column("docs/how_to/monitor.md") == [field.name for field in fields(Health)]


def test_every_table_of_the_paper_is_described() -> None:
    assert first_column("docs/how_to/reproduce_the_paper.md") == list(TABLES)


def test_every_figure_is_described() -> None:
    titles = re.findall(
        r"^## `(\w+)`$", (ROOT / "docs/reference/figures.md").read_text(), flags=re.MULTILINE
    )
    assert set(titles) == set(FIGURES)


def test_the_idea_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    main(["momentum", "--classes", "10", "--source-batch-size", "128", "--batch-size", "4"])
    printed = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert len(printed) > 4
    assert all(line in (ROOT / "docs/explanation/idea.md").read_text() for line in printed)


def test_the_idea_quotes_the_paper() -> None:
    text = (ROOT / "docs/explanation/idea.md").read_text()
    numbers = paper_errors("cifar10-c", "continual")
    shown = re.findall(r"^\|.*\(`(\w+)`\) \|(.*)\|$", text, flags=re.MULTILINE)
    assert {method for method, _ in shown} == {"source", "tbn", "tema", "rectified_tema"}
    for method, cells in shown:
        expected = [f"{numbers[method, size]:.2f}" for size in (200, 4, 1)]
        assert [cell.strip(" *") for cell in cells.split("|")] == expected


def test_ci_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci/run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
