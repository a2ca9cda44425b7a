"""tools/kills.py: a command that outlives its kills is told from one that does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KILLS = Path(__file__).parents[1] / "tools" / "kills.py"

# Counts to ten in a file, a step at a time. The first goes on where it was, the second cannot:
# what it writes down before a step is finished is counted twice after a kill.
CAREFUL = """
import os, pathlib, sys, time
file = pathlib.Path(sys.argv[1], "steps"); file.parent.mkdir(exist_ok=True, parents=True)
print("begun", flush=True)
while len(done := file.read_text() if file.exists() else "") < 10:
    time.sleep(0.05)
    pathlib.Path(sys.argv[1], ".new").write_text(done + "x")
    os.replace(pathlib.Path(sys.argv[1], ".new"), file)
"""
CARELESS = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1]); folder.mkdir(exist_ok=True, parents=True)
print("begun", flush=True)
for _ in range(10):
    with (folder / "steps").open("a") as file: file.write("x")
    time.sleep(0.05)
"""


def kill(program: str, kills: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(KILLS), "command", "--kills", str(kills), "--within", "0.4", "--"]
    words += [sys.executable, "-c", program, "{folder}"]
    return subprocess.run(words, check=False, capture_output=True, text=True)  # noqa: S603 - ours


def test_a_careful_program_ends_as_if_never_killed() -> None:
    ran = kill(CAREFUL, kills=4)
    assert ran.returncode == 0, ran.stdout
    assert "4 kills" in ran.stdout
    assert "nothing lost" in ran.stdout


def test_a_careless_program_is_found_out() -> None:
    ran = kill(CARELESS, kills=4)
    assert ran.returncode == 1
    assert "broken: steps is" in ran.stdout
