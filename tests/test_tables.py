"""Tables and pictures of README and docs are those of the stored results."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from realistic_tta.cli import main as cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
WITH_TABLE = [page for page in PAGES if "<!-- table: " in page.read_text()]


@pytest.fixture(scope="module")
def figures() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "tools" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = dict(sys.modules)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    for name in set(sys.modules) - set(before):
        if name in ("figures", "cost", "table"):
            del sys.modules[name]


@pytest.mark.parametrize("page", WITH_TABLE, ids=lambda page: page.stem)
def test_a_table_is_what_its_stored_results_print(figures: ModuleType, page: Path) -> None:
    text = page.read_text()
    assert text.count("<!-- table: ") == text.count("<!-- end -->")
    assert figures.with_tables(text) == text


def test_a_changed_number_in_a_table_is_noticed(figures: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    (number, *_) = re.findall(r"(?<=realistic        both, by uncertainty     )\d+\.\d", text)
    assert figures.with_tables(text.replace(number, f"{float(number) + 0.1:.1f}")) == text


def test_every_table_is_in_a_page_and_every_picture_has_a_run(figures: ModuleType) -> None:
    shown = {name for page in WITH_TABLE for name in re.findall(r"table: (\w+)", page.read_text())}
    assert shown == set(figures.TABLES)
    drawn = {ROOT / "docs/images" / name for run in figures.RUNS.values() for name in run.pictures}
    drawn |= {
        ROOT / "docs/images" / n for run in figures.RUNS.values() for n in run.pictures.values()
    }
    assert set(ROOT.glob("docs/images/**/*.png")) <= drawn


def test_the_commands_of_the_runs_are_valid(
    figures: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def instead(arguments: Any) -> int:
        seen.append(arguments)
        return 0

    monkeypatch.setattr(cli, "_run", instead)
    for run in figures.RUNS.values():
        for command in run.commands:
            first, *words = command.format(out="out").split()
            if first == "rtta":
                assert cli.main(words) == 0, command
            else:
                assert (first, (ROOT / words[0]).exists()) == ("python", True)
    assert len(seen) > 4


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_a_page_is_filled_with_what_its_programs_print(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "BUILD", tmp_path)
    page = "```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n```\nold\n```\n\nend\n"
    assert figures.with_outputs(page) == page.replace("old", "2")


def test_examples_in_the_program_hold(figures: ModuleType) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        failed, tried = doctest.testmod(figures)
    assert tried > 0 == failed


def test_the_check_of_the_prose_finds_what_it_looks_for() -> None:
    spec = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
    assert spec is not None
    assert spec.loader is not None
    prose = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prose)
    failed, tried = doctest.testmod(prose)
    assert tried > 0 == failed
    assert list(prose.phrases("It works as far as we know."))
    assert not list(prose.phrases("It works with every method."))
    assert prose.sentences(prose.prose(" ".join(["word"] * 40) + ".\n")) == [40]
    assert list(prose.problems()) == []
