"""The `rtta` command line. Each command has its own module in this package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from realistic_tta.errors import RealisticTTAError

from . import (
    bench,
    corrupt,
    data,
    demo,
    models,
    momentum,
    plot,
    report,
    reproduce,
    results,
    train,
)

COMMANDS = (demo, bench, reproduce, results, plot, report, momentum, data, corrupt, models, train)
EXTRAS = {  # the extra that installs each optional package
    **dict.fromkeys(("numpy", "cv2", "PIL", "rich", "safetensors", "scipy"), "data"),
    **dict.fromkeys(("pandas", "pyarrow"), "results"),
    "matplotlib": "demo",
    "ray": "ray",
}


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code: 2 for user errors, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="rtta", description="Test-time adaptation that works at every batch size."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in COMMANDS:
        command.add_commands(commands)
    try:
        arguments = parser.parse_args(words)
    except SystemExit as end:  # of argparse: 2 after an error, 0 after --help
        return end.code if isinstance(end.code, int) else 2
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
        code = arguments.run(arguments) or 0
        sys.stdout.flush()
    except RealisticTTAError as error:
        print(f"rtta: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        print(
            f"rtta: {package} is not installed; run pip install 'realistic-tta[{EXTRAS[package]}]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("rtta: interrupted; the same command resumes where it stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    else:
        return int(code)


if __name__ == "__main__":
    sys.exit(main())
