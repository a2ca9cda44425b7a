"""The command line: words into calls. `rtta --help` lists the commands; each is in commands/."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from realistic_tta.cli import (
    ablate,
    bench,
    corrupt,
    data,
    demo,
    faults,
    momentum,
    networks,
    plot,
    report,
    reproduce,
    results,
    train,
)

COMMANDS = (
    demo,
    bench,
    reproduce,
    ablate,
    faults,
    results,
    plot,
    report,
    momentum,
    data,
    corrupt,
    networks,
    train,
)
EXTRAS = {  # which of the package's extras brings what
    **dict.fromkeys(("numpy", "cv2", "PIL", "safetensors", "scipy"), "data"),
    **dict.fromkeys(("rich", "yaml"), "bench"),
    **dict.fromkeys(("pandas", "pyarrow"), "results"),
    "matplotlib": "demo",
    "ray": "ray",
}


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="rtta", description="Test-time adaptation that works at every batch size."
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in COMMANDS:
        command.add_commands(commands)
    arguments = parser.parse_args(words)
    if arguments.version:
        from realistic_tta import __version__

        print(__version__)
        return 0
    if not hasattr(arguments, "run"):
        parser.print_help()
        return 2
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        arguments.run(arguments)
    except ValueError as error:
        print(f"rtta: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"rtta: {_advice(error.name or str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("rtta: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    return 0


def _advice(module: str) -> str:
    """How to get what is missing.

    >>> _advice("ray.exceptions")
    "ray is not installed; pip install 'realistic-tta[ray]' brings it"
    """
    package, *_ = module.split(".")
    extra = EXTRAS.get(package)
    told = f"{package if extra else module} is not installed"
    return f"{told}; pip install 'realistic-tta[{extra or 'demo'}]' brings it"


if __name__ == "__main__":
    sys.exit(main())
