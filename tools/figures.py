"""Makes the tables and pictures of README and docs anew, from runs of the present version.

    make figures                                           # what needs no download: 10 minutes
    python tools/figures.py --only verdict,which_method    # what needs it: 85 minutes
    python tools/figures.py --pages                        # runs nothing: writes the stored results
    python tools/figures.py --print bench                  # one table, from the stored results

A run is stored in benchmarks/stored, or beside the verdict's program: an archive of its records,
or a JSON file. A table in a page stands between `<!-- table: NAME -->` and `<!-- end -->`, and is
printed from what is stored; a test compares them. The times are for two cores without other load.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from realistic_tta import METHODS
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.cli import demo
from realistic_tta.cli.main import main as rtta
from realistic_tta.cli.results import in_order

ROOT = Path(__file__).parents[1]
STORED = ROOT / "benchmarks" / "stored"
BUILD = ROOT / "build" / "figures"
IMAGES = ROOT / "docs" / "images"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
TABLE = re.compile(r"(?<=<!-- table: )(\w+)( -->\n)(.*?)(?=<!-- end -->)", flags=re.DOTALL)
PROGRAM = re.compile(r"(```python\n(.*?)```\n)(?:(\n```\n)(.*?)(```\n))?", flags=re.DOTALL)


@dataclass(frozen=True)
class Run:
    """Commands that measure or draw.

    commands: run in turn from the repository's root; {out} is the run's folder.
    minutes: about how long they take.
    stored: where the results are kept; None for a run that only draws.
    pictures: files of the run's folder, and their names in docs/images.
    """

    commands: tuple[str, ...]
    minutes: int
    stored: Path | None = None
    pictures: dict[str, str] = field(default_factory=dict)
    download: bool = False


SEVEN = "source,tbn,alpha_bn,adapt_bn,tema,rectified_tema,realistic"
BENCH = "rtta bench --batch-sizes 200,64,16,4,1 --images 200 --out {out}"
STREAM = "cifar10-c-sample.cifar10.continual.200-images"
RUNS = {
    "demo": Run(
        ("rtta demo --out {out}",),
        2,
        STORED / "demo.tar.xz",
        {"demo.png": "demo.png"},
    ),
    "bench": Run(
        (
            f"{BENCH} --methods {SEVEN} --traces",
            f"{BENCH} --methods tema --momentums 1,0.1,0.01",
            "rtta plot --dir {out}",
        ),
        3,
        STORED / "bench.tar.xz",
        {
            f"figures/{name}{'' if one_for_all else f'.{STREAM}'}.png": f"figures/{name}.png"
            for name, one_for_all in (
                ("class_diversity", True),
                ("momentum_analysis", True),
                ("error_by_batch_size", False),
                ("error_by_corruption", False),
                ("error_over_stream", False),
                ("cost_against_error", False),
                ("layers", False),
            )
        },
    ),
    "cost": Run(
        ("python benchmarks/cost.py --models resnet20 --json {out}/cost.json",),
        4,
        STORED / "cost.json",
    ),
    "corruptions": Run(
        ("python examples/contact_sheet.py --out {out}/corruptions.png",),
        1,
        pictures={"corruptions.png": "corruptions.png"},
    ),
    "verdict": Run(
        ("rtta bench --file benchmarks/verdict/verdict.toml --out {out}",),
        75,
        ROOT / "benchmarks" / "verdict" / "records.tar.xz",
        download=True,
    ),
    "which_method": Run(
        ("rtta bench --file benchmarks/which_method.toml --out {out}",),
        10,
        STORED / "which_method.tar.xz",
        download=True,
    ),
}


def program(path: Path) -> ModuleType:
    """A file of the repository as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def unpacked(name: str) -> Iterator[Path]:
    """The folder of a run's stored records."""
    stored = RUNS[name].stored
    assert stored is not None
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(stored) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def records(name: str) -> list[Record]:
    """A run's stored records."""
    with unpacked(name) as folder:
        return in_order(Results(folder, create=False).read())


def block(text: str) -> str:
    """The text as a block of code, without spaces at the ends of its lines."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(["```", *lines, "```"]) + "\n"


def demo_table() -> str:
    """The table and the sentence that `rtta demo` prints."""
    errors = demo.errors_of(records("demo"), demo.BATCH_SIZES)
    console = Console(file=io.StringIO(), width=74, highlight=False)
    with console.capture() as printed:
        console.print(demo.table(errors, list(demo.STATISTICS), demo.BATCH_SIZES))
        console.print(demo.headline(errors, demo.BATCH_SIZES))
    return block(printed.get())


def bench_table() -> str:
    """The table of `rtta bench --methods source,tbn,... --batch-sizes 200,16,1`."""
    chosen = "--methods source,tbn,adapt_bn,rectified_tema,realistic --batch-sizes 200,16,1"
    printed = io.StringIO()
    with unpacked("bench") as folder, contextlib.redirect_stdout(printed):
        rtta(["results", "--dir", str(folder), "--pivot", "method,batch_size", *chosen.split()])
    return block(printed.getvalue())


def cost_table(methods: Sequence[str]) -> Callable[[], str]:
    """A program that prints the ratios of these methods, or of all."""

    def table() -> str:
        cost = program(ROOT / "benchmarks" / "cost.py")
        figures = json.loads((STORED / "cost.json").read_text())
        return block("\n".join(cost.lines(figures, methods)))

    return table


def verdict_table(name: str, *arguments: str) -> Callable[[], str]:
    """A program that prints a part of the verdict."""

    def table() -> str:
        verdict = program(ROOT / "benchmarks" / "verdict" / "table.py")
        return str(getattr(verdict, name)(verdict.Verdict(records("verdict")), *arguments))

    return table


def which_method_table() -> str:
    """The error of every method on six streams, as Markdown; what is above the source is marked."""
    streams = {
        "corruptions, 200": ("continual", 200),
        "16": ("continual", 16),
        "1": ("continual", 1),
        "mixed": ("mixed", 16),
        "sorted": ("correlated", 16),
        "clean": ("clean", 16),
    }
    found: dict[str, dict[str, float]] = {}
    for record in sorted(records("which_method"), key=lambda each: len(each.hyperparameters)):
        name = "+".join([record.method, *sorted(record.hyperparameters)])
        for column, (scenario, size) in streams.items():
            fits = record.scenario == scenario and record.batch_size == size
            fits = fits or (record.scenario == scenario and record.method == "source")
            if fits and record.error is not None:
                found.setdefault(name, {})[column] = record.error
    lines = [f"| method | {' | '.join(streams)} |", "|---" * (1 + len(streams)) + "|"]
    for name, errors in found.items():
        cells = [
            f"{errors[column]:.1f}" + (" ✗" if errors[column] > found["source"][column] else "")
            if column in errors
            else "-"
            for column in streams
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(["", *lines, "", ""])


def presets_table() -> str:
    """What every preset changes, as Markdown."""
    lines = ["| method | preset | differs from the defaults |", "|---|---|---|"]
    for name, method in METHODS.items():
        for preset, changes in getattr(method.settings_type, "presets", {}).items():
            shown = ", ".join(f"`{key}={value!r}`" for key, value in changes.items())
            lines += [f"| `{name}` | `{preset}` | {shown} |"] if changes else []
    return "\n".join(["", *lines, "", ""])


TABLES: dict[str, Callable[[], str]] = {
    "demo": demo_table,
    "bench": bench_table,
    "cost": cost_table(()),
    "cost_of_four": cost_table(("tbn", "rectified_tema", "realistic", "tent")),
    "verdict": verdict_table("text"),
    "verdict_summary": verdict_table("summary_text"),
    "verdict_clean": verdict_table("claim_text", "c."),
    "which_method": which_method_table,
    "presets": presets_table,
}


def with_tables(text: str) -> str:
    """The page with every table as it is printed from the stored results."""
    return TABLE.sub(lambda found: found[1] + found[2] + TABLES[found[1]](), text)


def with_outputs(text: str) -> str:
    """The page with what each of its programs prints, where the page shows it."""
    names: dict[str, Any] = {}

    def run(found: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(BUILD):
            exec(compile(found[2], "page", "exec", dont_inherit=True), names)  # noqa: S102
        shown = f"{found[3]}{printed.getvalue()}{found[5]}" if found[3] else ""
        return found[1] + shown

    return PROGRAM.sub(run, text)


def shows_output(text: str) -> bool:
    r"""Whether a program of the page is followed by what it prints.

    >>> shows_output("```python\nprint(1)\n```\n\n```\n1\n```\n")
    True
    """
    return any(found[3] for found in PROGRAM.finditer(text))


def measure(name: str) -> None:
    """Runs the commands, and keeps their results and pictures."""
    run, out = RUNS[name], BUILD / name
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    for command in run.commands:
        words = shlex.split(command.format(out=out))
        words[:1] = [sys.executable, *(["-m", "realistic_tta"] if words[0] == "rtta" else [])]
        print("+", command.format(out=out.relative_to(ROOT)), flush=True)
        subprocess.run(words, cwd=ROOT, check=True)  # noqa: S603 - our own
    if run.stored and run.stored.suffix == ".json":
        shutil.copy(out / run.stored.name, run.stored)
    elif run.stored:
        with tarfile.open(run.stored, "w:xz") as archive:
            for each in ("records", "schema.json"):
                archive.add(out / each, each)
    for file, image in run.pictures.items():
        shutil.copy(out / file, IMAGES / image)
    shutil.rmtree(out)  # the next run measures anew; one that was interrupted resumes
    print(f"{name}: {(time.monotonic() - start) / 60:.0f} minutes\n", flush=True)


def write_pages() -> None:
    """Writes tables and outputs into all pages."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        before = page.read_text()
        after = with_tables(before)
        after = with_outputs(after) if shows_output(after) else after
        if after != before:
            page.write_text(after)
            print(page.relative_to(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help=f"of {','.join(RUNS)}; default: what needs no download")
    parser.add_argument("--pages", action="store_true", help="run nothing; write the pages")
    parser.add_argument("--print", choices=TABLES, help="print one table and end")
    arguments = parser.parse_args()
    if arguments.print:
        print(TABLES[arguments.print](), end="")
        return
    chosen = [name for name, run in RUNS.items() if not run.download]
    if arguments.only:
        chosen = arguments.only.split(",")
    if not arguments.pages:
        print(f"about {sum(RUNS[name].minutes for name in chosen)} minutes on two cores\n")
        for name in chosen:
            measure(name)
    write_pages()


if __name__ == "__main__":
    main()
