"""The site is built without a warning, and the notebooks run."""

from __future__ import annotations

import doctest
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import realistic_tta
from realistic_tta.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
together = pytest.mark.xdist_group("site")  # they share one build
FIGURE = re.compile(r"\d+\.\d")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in another folder."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    ran = subprocess.run(  # noqa: S603 - our own
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@together
def test_every_document_is_a_page_of_the_site(site: Path) -> None:
    documents = {path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md")}
    assert documents <= {p.relative_to(site).with_suffix(".md") for p in site.rglob("*.html")}
    assert {path.stem for path in NOTEBOOKS} == {p.stem for p in site.glob("notebooks/*.html")}


@together
def test_the_site_works_offline(site: Path) -> None:
    """No page loads a font, script, style or picture from another host."""
    for page in site.rglob("*.html"):
        asked = re.findall(r'<(?:script|img|iframe)[^>]* src="(\w+:)?//', page.read_text())
        asked += re.findall(r'<link[^>]* href="https?://[^"]*"[^>]*>', page.read_text())
        assert not asked, page.name


@together
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = (site / "reference/api.html").read_text()
    for name in set(realistic_tta.__all__) - {"__version__"}:
        assert re.search(rf'id="realistic_tta\.(\w+\.)*{name}"|realistic_tta\.{name}', text), name


@together
def test_links_to_notebooks_lead_to_their_pages(site: Path) -> None:
    start = (site / "index.html").read_text()
    assert 'href="notebooks/your_model_meets_fog.html"' in start
    assert ".ipynb" not in start


@together
def test_every_command_has_its_help_on_the_site(site: Path) -> None:
    text = (site / "reference/command_line.html").read_text()
    for command in COMMANDS:
        assert f'id="rtta-{command.__name__.rsplit(".", 1)[1]}"' in text


@pytest.mark.parametrize("name", ["notebook_pages", "doctest_blocks", "command_line_page"])
def test_examples_in_what_builds_the_site_hold(name: str) -> None:
    pytest.importorskip("mkdocstrings")
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    failed, tried = doctest.testmod(module)
    assert tried > 0 == failed


def test_the_target_builds_as_this_test_does() -> None:
    """Without --quiet, which would also hide the warnings that are counted."""
    assert "mkdocs build --strict\n" in (ROOT / "Makefile").read_text()


def printed(notebook: dict[str, Any]) -> str:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return "".join(itertools.chain.from_iterable(output.get("text", "") for output in outputs))


def pictures(notebook: dict[str, Any]) -> int:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # of nbclient and nbformat
def test_a_notebook_runs_and_prints_what_it_is_stored_with(path: Path) -> None:
    """Numbers may differ by two points: other processors round differently."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    stored = json.loads(path.read_text())
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300).execute()
    expected = [float(number) for number in FIGURE.findall(printed(stored))]
    found = [float(number) for number in FIGURE.findall(printed(notebook))]
    assert found == pytest.approx(expected, abs=2)
    assert pictures(notebook) == pictures(stored) >= 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_names_no_place_of_a_machine(path: Path) -> None:
    text = path.read_text()
    assert len(text) < 300_000
    assert not re.search(r"/(home|root|tmp|usr|work)/|\"stderr\"|\"error\",", text)
