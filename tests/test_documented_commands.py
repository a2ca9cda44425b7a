"""Every command that README and docs show is run, unless that takes minutes or a download.

HOW decides by the first words of a command:

- commands that read results run unchanged, on made-up results;
- commands that measure for minutes run with --dry-run;
- commands that download, train, or corrupt thousands of images are parsed by the real parser;
- Python programs run with a budget of seconds; tests/test_examples.py runs the examples;
- make, pip and ray are checked against what they name: a target, an extra, an option.

A command with other first words fails until HOW has an entry for it.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from figure_subjects import momentum_runs, runs, trace

from realistic_tta.benchmark import estimate
from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.traces import write_trace
from realistic_tta.cli import main as cli

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
PROGRAMS = ("rtta", "make", "python", "pip", "ray")


def commands() -> list[str]:
    """The commands of all documents, each once: lines of indented blocks, without comments."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text().replace("\\\n", " ")
        lines = re.findall(r"^ {4}(?:\$ )?(.*)$", text, flags=re.MULTILINE)
        found += [line for line in lines if line.split(" ")[0] in PROGRAMS]
    found = [re.sub(r"\s+#.*", "", line) for line in found]
    found = [re.sub(r"\[(--[^]]+)\]", r"\1", line) for line in found]  # optional
    return list(dict.fromkeys(" ".join(line.split()) for line in found))


def as_it_stands(words: list[str]) -> None:
    assert cli.main(words) == 0


def dry(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only data sets and models that have to be downloaded first may be missing."""
    monkeypatch.setattr(estimate, "seconds", lambda left: [1.0] * len(left))  # it runs models
    code = cli.main([*words, *(["--dry-run"] if "--dry-run" not in words else [])])
    error = capsys.readouterr().err.rpartition("rtta: ")[2]
    assert code == 0 or "`rtta data get" in error, error


def parsed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[argparse.Namespace] = []

    def instead(arguments: argparse.Namespace) -> int:
        taken.append(arguments)
        return 0

    monkeypatch.setattr(cli, "_run", instead)
    assert cli.main(words) == 0
    assert callable(taken[0].run)


def make_target(words: list[str]) -> None:
    (target,) = words
    assert re.search(rf"^{target}: ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


# What a program gets besides, so that it runs for seconds.
BUDGET: dict[str, list[str]] = {
    "benchmarks/cost.py": ["--seconds", "0.01", "--batch-sizes", "2"],
    "benchmarks/verdict/table.py": [],
    "tools/figures.py": [],
}


def python_file(words: list[str]) -> None:
    if words[0].startswith("examples/"):  # tests/test_examples.py runs them
        assert (ROOT / words[0]).exists()
        return
    ran = subprocess.run(  # noqa: S603 - our own
        [sys.executable, str(ROOT / words[0]), *words[1:], *BUDGET[words[0]]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def pip_install(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in re.findall(r"realistic-tta\[(\w+)\]", " ".join(words)):
        assert extra in extras["optional-dependencies"]


def ray_options(words: list[str]) -> None:
    scripts = pytest.importorskip("ray.scripts.scripts")
    known = {option for parameter in scripts.start.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


HOW: dict[str, Callable[..., None]] = {
    "rtta momentum": as_it_stands,
    "rtta models": as_it_stands,
    "rtta data list": as_it_stands,
    "rtta data check": as_it_stands,
    "rtta results": as_it_stands,
    "rtta plot": as_it_stands,
    "rtta report": as_it_stands,
    "rtta bench": dry,
    "rtta reproduce": dry,
    "rtta demo": parsed,  # tests/cli/test_demo.py
    "rtta train": parsed,  # tests/cli/test_train.py
    "rtta corrupt": parsed,  # tests/cli/test_corrupt.py
    "rtta data get": parsed,  # tests/cli/test_data.py
    "make": make_target,
    "python": python_file,
    "pip install": pip_install,
    "ray start": ray_options,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results under the names that the documents use."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    text = (ROOT / "docs/how_to/compare_methods.md").read_text()
    (shown,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    (folder / "grid.toml").write_text(shown)
    with tarfile.open(ROOT / "benchmarks/verdict/records.tar.xz") as archive:
        archive.extractall(folder / "rtta-verdict", filter="data")
    for name in ("rtta-bench", "DIR"):
        stored = Results(folder / name)
        for each in [*runs(sizes=(64, 16, 4, 1)), *momentum_runs()]:
            stored.write(each)
            write_trace(trace(each.key), stored.folder)
    return folder


@pytest.mark.parametrize("command", commands())
def test_a_command_runs_as_it_is_documented(
    command: str,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(results)
    monkeypatch.setenv("RTTA_DATA", str(results / "data"))
    words = shlex.split(command.replace("/shared", "shared"))
    first = max((each for each in HOW if f"{command} ".startswith(f"{each} ")), key=len, default="")
    assert first, f"HOW has no entry for `{command}`"
    how, rest = HOW[first], words[len(first.split()) :]
    arguments = words[1:] if words[0] == "rtta" else rest
    fixtures = {"parsed": (monkeypatch,), "dry": (monkeypatch, capsys)}
    how(arguments, *fixtures.get(how.__name__, ()))


def test_every_command_of_the_program_is_documented() -> None:
    """A change of how commands are found here cannot lose them silently."""
    shown = {command.split()[1] for command in commands() if command.startswith("rtta")}
    assert shown == {module.__name__.rsplit(".", 1)[1] for module in cli.COMMANDS}
    assert len(commands()) > 35


def options(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main([command, "--help"]) == 0, command
    return capsys.readouterr().out


def test_options_named_in_passing_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks options inside sentences, such as `rtta bench --traces`."""
    named = set()
    for document in set(DOCUMENTS) - {ROOT / "CHANGELOG.md"}:  # it names what was removed
        named |= set(re.findall(r"`rtta (\w+)([^`]*)`", document.read_text()))
    assert len(named) > 15
    for command, rest in sorted(named):
        told = options(command, capsys)
        assert all(option in told for option in re.findall(r"--[\w-]+", rest)), (command, rest)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_block_is_of_a_kind_that_a_test_runs(document: Path) -> None:
    """Blocks without a language show the output of a command."""
    opened = re.findall(r"^```(\w*)$", document.read_text(), flags=re.MULTILINE)[::2]
    assert set(opened) <= {"python", "toml", ""}
