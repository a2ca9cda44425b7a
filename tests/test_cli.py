from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from realistic_tta import __version__
from realistic_tta.cli.main import EXTRAS, main
from realistic_tta.errors import DataError

MOMENTUM = ["momentum", "--classes", "10", "--source-batch-size", "128", "--batch-size"]


@pytest.mark.parametrize(("batch_size", "chosen"), [(200, 1), (16, 0.1), (4, 0.1), (1, 0.01)])
def test_momentum_for_machines(
    batch_size: int, chosen: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MOMENTUM, str(batch_size), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["momentum"] == chosen
    assert [candidate["momentum"] for candidate in facts["candidates"]] == [1, 0.1, 0.01, 0.001]
    best = min(facts["candidates"], key=lambda candidate: candidate["objective"])
    assert best["momentum"] == chosen


def test_momentum_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Every candidate with its objective, the choice marked."""
    assert main([*MOMENTUM, "4"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "." in line]
    chosen = [row[0] for row in rows if row[-1] == "chosen"]
    assert chosen == ["0.1"]
    assert [row[:4] for row in rows if row[0] == "0.1"] == [["0.1", "84", "9.03", "0.0410"]]


def test_bad_numbers_are_answered_and_the_exit_code_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*MOMENTUM, "0"]) == 2
    assert '"0"; expected an integer of 1 or more' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("cv2", ["corrupt", "cifar10", "--out", "nowhere"], "data"),
        ("rich.console", ["bench", "--out", "nowhere"], "data"),
        ("ray", ["bench", "--engine", "ray", "--out", "nowhere"], "ray"),
    ],
)
def test_a_missing_package_says_how_to_get_it(
    package: str,
    words: list[str],
    extra: str,
) -> None:
    """In a process of its own, in which nothing has been imported yet."""
    program = (
        f"import sys; sys.modules[{package!r}] = None\nfrom realistic_tta.cli.main import main\n"
    )
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", f"{program}sys.exit(main({words!r}))"],
        check=False,
        capture_output=True,
        text=True,
    )
    name, *_ = package.split(".")
    assert ran.returncode == 2, ran.stderr
    assert f"{name} is not installed; run pip install 'realistic-tta[{extra}]'" in ran.stderr


def test_every_package_of_an_extra_is_found_in_it() -> None:
    """The advice names an extra that exists and brings the package."""
    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    extras = declared["project"]["optional-dependencies"]
    sold_as = {"cv2": "opencv-python-headless", "PIL": "pillow"}
    for package, extra in EXTRAS.items():
        assert sold_as.get(package, package) in extras[extra]


def test_an_interrupt_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("realistic_tta.data.cifar.load_cifar", interrupt)
    assert main(["corrupt", "cifar10", "--out", "nowhere"]) == 130
    assert "the same command resumes" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError])
def test_an_internal_error_shows_a_traceback(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for a mistake of the user."""

    def broken(*_: object) -> None:
        raise error("a bug")

    monkeypatch.setattr("realistic_tta.functional.momentum.choose_momentum", broken)
    with pytest.raises(error, match="a bug"):
        main([*MOMENTUM, "4"])


def test_an_unknown_missing_module_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ModuleNotFoundError(name="realistic_tta.gone")

    monkeypatch.setattr("realistic_tta.functional.momentum.choose_momentum", broken)
    with pytest.raises(ModuleNotFoundError):
        main([*MOMENTUM, "4"])


def test_an_error_of_the_library_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise DataError("the file is damaged")

    monkeypatch.setattr("realistic_tta.functional.momentum.choose_momentum", refuse)
    assert main([*MOMENTUM, "4"]) == 2
    assert capsys.readouterr().err == "rtta: the file is damaged\n"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )


def test_a_closed_pipe_ends_quietly() -> None:
    words = [sys.executable, "-m", "realistic_tta.cli.main", *MOMENTUM, "4"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 1
    process.stderr.close()


def test_it_starts_where_the_system_lacks_affinity_and_resource() -> None:
    """As on Windows; macOS lacks the first."""
    ran = run(
        "import os, sys; del os.sched_getaffinity; sys.modules['resource'] = None\n"
        "from realistic_tta.cli.main import main\n"
        "from realistic_tta.benchmark.environment import peak_memory\n"
        "assert peak_memory() is None\n"
        "sys.exit(main(['bench', '--help']))"
    )
    assert ran.returncode == 0, ran.stderr
    assert "--batch-sizes LIST" in ran.stdout


def test_help_version_and_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__
    assert main([]) == 2
    assert "momentum" in capsys.readouterr().out


def test_the_command_is_installed() -> None:
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "realistic_tta", *MOMENTUM, "16", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(ran.stdout)["momentum"] == 0.1
