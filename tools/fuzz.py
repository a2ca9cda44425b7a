"""Fuzzes the loaders of files with atheris: inputs that reach new lines of the source are kept.

    PYTHONPATH=src:tests python tools/fuzz.py record --seconds 60
    PYTHONPATH=src:tests python tools/fuzz.py all --seconds 60

Needs the package atheris, which is not installed with the others. Each loader of
tests/fuzz_targets.py starts from its good file; anything but a result or the package's own error
stops it, and the input is written to `--found`. tests/test_fuzz.py does a little of this, without
atheris, in every run of the tests.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ALL = "all"


def fuzz_one(name: str, seconds: int, found: Path) -> None:
    """In this process, which libFuzzer ends."""
    import atheris  # noqa: PLC0415 - needed here alone

    with atheris.instrument_imports(include=["realistic_tta", "tarfile"]):
        from fuzz_targets import TARGETS, run  # noqa: PLC0415 - instrumented as it is imported

    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="rtta-fuzz-") as place:
        corpus = Path(place) / "corpus"
        corpus.mkdir()
        (corpus / "good").write_bytes(target.good())
        options = [
            f"-max_total_time={seconds}",
            "-timeout=60",
            "-rss_limit_mb=4096",
            "-verbosity=1",
        ]
        options += [f"-artifact_prefix={found}/{name.replace(' ', '-')}-", "-print_final_stats=1"]
        options += [f"-max_len={4 * len(target.good()) + 4096}"]
        atheris.Setup(
            [sys.argv[0], str(corpus), *options],
            lambda content: run(target, content, Path(place) / "file") and None,
        )
        atheris.Fuzz()


def fuzz_all(seconds: int, found: Path) -> int:
    """Each loader in a process of its own; a table of what was tried."""
    from fuzz_targets import TARGETS  # noqa: PLC0415 - beside the tests

    failed = tried = 0
    for name in TARGETS:
        words = [sys.executable, __file__, name, "--seconds", str(seconds), "--found", str(found)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - this
        counted = re.search(r"number_of_executed_units: (\d+)", ran.stderr)
        count = int(counted[1]) if counted else 0
        print(f"| {name} | {count:,} | {'nothing' if not ran.returncode else 'see below'} |")
        if ran.returncode:
            print(f"{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")
        sys.stdout.flush()
        failed, tried = failed + bool(ran.returncode), tried + count
    print(f"\n{tried:,} inputs tried, {failed} loaders failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Files with errors in them, without end.")
    parser.add_argument("name", help="a loader of tests/fuzz_targets.py, or all")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"))
    arguments = parser.parse_args()
    arguments.found.mkdir(parents=True, exist_ok=True)
    if arguments.name == ALL:
        return fuzz_all(arguments.seconds, arguments.found)
    fuzz_one(arguments.name, arguments.seconds, arguments.found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
