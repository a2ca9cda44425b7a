"""What a record says of the program and the machine: versions, commit, device, memory."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

PACKAGE = Path(__file__).parents[1]


def best_device() -> torch.device:
    """A GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """As people call it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@cache
def versions() -> dict[str, str | None]:
    """Of everything that figures may depend on."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # else a class of its own, which no safe reader takes
        "package": version("realistic-tta"),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the package's own repository, `+` if its files differ from it."""
    if not _git("ls-files", "__init__.py"):  # a repository around an installed package is another
        return None
    changed = _git("status", "--porcelain", "--untracked-files=no", ".")
    return f"{_git('rev-parse', 'HEAD')}{'+' if changed else ''}"


def _git(*words: str) -> str:
    try:
        ran = subprocess.run(  # noqa: S603 - fixed words
            ["git", "-C", str(PACKAGE), *words],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""


def forget_peak_memory() -> None:
    """Starts the high-water mark anew where the system can: Linux."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> float:
    """Highest resident memory of this process, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6  # macOS counts bytes
