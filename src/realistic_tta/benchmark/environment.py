"""Facts about the program and the computer that a record keeps: versions, device, memory."""

from __future__ import annotations

import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PACKAGE = Path(__file__).parents[1]


def best_device() -> torch.device:
    """A GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """The product name of a GPU, else the device type."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@cache
def versions() -> dict[str, str | None]:
    """Versions of everything the results may depend on."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # a plain string, which weights_only=True can load
        "package": version("realistic-tta"),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the package's own repository, followed by `+` if its files are modified."""
    if not _git("ls-files", "__init__.py"):  # installed inside another repository
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


def reset_peak_memory() -> None:
    """Resets the high-water mark of this process, where the system can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> float | None:
    """Peak resident memory of this process in MB; None where the system does not tell."""
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6  # macOS counts bytes
