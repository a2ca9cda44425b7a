"""Kills a command at random moments, starts it again, and compares the end with an unbroken run.

    python tools/kills.py bench [--kills 100]       `rtta bench`, with all its workers
    python tools/kills.py save [--kills 100]        a model that saves its state after every batch
    python tools/kills.py download [--kills 100]    a file from a slow server on this machine
    python tools/kills.py command [--kills 100] -- PROGRAM ... {folder} ...

A command is left alone until it has written its first line, and then killed (SIGKILL) after up to
`--within` seconds; every other time its first process only, and then whatever that has started must
end by itself. When it comes to its end, what it leaves in its folder must be what an unbroken run
leaves there: for `bench` all figures of the records, else every byte of every file. Then the next
round begins in a new folder, until there were as many kills as asked for. Ends with code 1 at the
first difference. "{folder}" in the words of a command stands for the round's folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Outcome = dict[str, str]
TIMES = {"seconds", "method_seconds", "cost", "peak_memory", "resumed", "finished"}
OWN_END = 60.0  # seconds that the processes of a killed command have to notice it
LONGEST = 600.0  # seconds of one run

GRID = "--images 8 --methods tema,rectified_tema,tent --batch-sizes 4 --workers 1 --save-every 0"
BENCH = [sys.executable, "-m", "realistic_tta", "bench", *GRID.split(), "--out", "{folder}"]
# The package without its __init__: that imports torch, for seconds, which no download needs.
FETCH = """
import importlib.machinery, sys, types
from pathlib import Path
package = sys.modules["realistic_tta"] = types.ModuleType("realistic_tta")
spec = importlib.machinery.PathFinder.find_spec("realistic_tta")
package.__path__ = spec.submodule_search_locations
from realistic_tta.data.registry import Archive
from realistic_tta.data.download import fetch

name, url, size, md5, folder = sys.argv[1:]
print("begun", flush=True)
fetch(Archive(name, url, int(size), md5), Path(folder))
"""
# Adapts to the package's photographs, one after another, and goes on from the last state.
SAVE = """
import sys
from pathlib import Path
import torch
import realistic_tta
from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.models.checkpoints import load_model

torch.set_num_threads(1)
state = Path(sys.argv[1], "state.safetensors")
state.parent.mkdir(exist_ok=True, parents=True)
model = load_model("cifar10")
if state.exists():
    adapted = realistic_tta.load(state, model)
else:
    adapted = realistic_tta.adapt(model, "realistic")
adapted.autosave(state, every_batches=1)
print("begun", flush=True)
images = torch.from_numpy(load_bundled_images().images[:300]).permute(0, 3, 1, 2).float() / 255
for image in images.split(1)[int(adapted.step):]:
    adapted(image)
"""


class Broken(Exception):  # noqa: N818 - what this program looks for
    """A kill has done harm."""


@dataclass(frozen=True)
class Trial:
    """words: of the command. outcome: what must be the same. within: seconds to the kill."""

    words: Sequence[str]
    outcome: Callable[[Path], Outcome]
    within: float


@dataclass
class Count:
    """What happened so far."""

    kills: int = 0
    alone: int = 0  # of the first process only
    rounds: int = 0
    by_round: list[int] = field(default_factory=list)


def files_of(folder: Path) -> Outcome:
    """Every file's bytes, by name; but for hidden ones, which a kill leaves half written."""
    paths = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def figures_of(folder: Path) -> Outcome:
    """The records without times, the images they were measured on, and no state left over."""
    found = files_of(folder)
    for path in (folder / "records").glob("*.json"):
        record = json.loads(path.read_text())
        kept = {name: value for name, value in record.items() if name not in TIMES}
        found[str(path.relative_to(folder))] = json.dumps(kept, sort_keys=True)
    return found


def state_of(folder: Path) -> Outcome:
    """Every tensor and every word of the state; their order in the file is safetensors' choice."""
    (name,) = files_of(folder)
    content = (folder / name).read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"].pop("checksum")  # of the bytes in their order
    tensors = hashlib.sha256(content[end:]).hexdigest()
    return {name: f"{json.dumps(header, sort_keys=True)} {tensors}"}


def start(trial: Trial, folder: Path) -> subprocess.Popen[bytes]:
    """The command in a process group of its own; returns at its first line, or its end."""
    words = [word.replace("{folder}", str(folder)) for word in trial.words]
    process = subprocess.Popen(  # noqa: S603 - the command to be killed
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    threading.Thread(target=process.stdout.read, daemon=True).start()  # so that it never waits
    return process


def run_whole(trial: Trial, folder: Path) -> Outcome:
    process = start(trial, folder)
    if process.wait(LONGEST):
        raise Broken(f"ended with code {process.returncode}, without any kill")
    return trial.outcome(folder)


def kill(process: subprocess.Popen[bytes], *, alone: bool) -> None:
    """The whole group, or its first process; returns when none of the group is left."""
    if alone:
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + OWN_END
    while left := alive(process.pid):
        if time.monotonic() > end:
            os.killpg(process.pid, signal.SIGKILL)
            raise Broken(f"{left} outlived their parent by {OWN_END:.0f} seconds")
        time.sleep(0.05)


def alive(group: int) -> list[str]:
    """The processes of a group, by their command; a dead one that nobody asked for is none."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, _, its_group = (place / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append((place / "cmdline").read_text().replace("\0", " ").strip())
        except OSError:
            continue  # it ended while it was looked at
    return found


def run_killed(trial: Trial, folder: Path, chance: random.Random, count: Count, most: int) -> None:
    """One round: killed again and again until it comes to its end, or nothing is left to kill."""
    killed = 0
    while True:
        process = start(trial, folder)
        last = count.kills >= most
        try:
            code = process.wait(LONGEST if last else chance.uniform(0, trial.within))
        except subprocess.TimeoutExpired:
            alone = chance.random() < 0.5
            kill(process, alone=alone)
            count.kills, count.alone, killed = count.kills + 1, count.alone + alone, killed + 1
            print(f"kill {count.kills}", flush=True)
            continue
        if code:
            raise Broken(f"ended with code {code} after {killed} kills in {folder}")
        count.by_round.append(killed)
        return


def compare(found: Outcome, expected: Outcome) -> None:
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise Broken(
                f"{name} is {found.get(name, 'missing')}; expected {expected.get(name, 'no such')}"
            )


def try_it(trial: Trial, kills: int, seed: int) -> Count:
    chance, count = random.Random(seed), Count()  # noqa: S311 - moments to kill at
    with tempfile.TemporaryDirectory(prefix="rtta-kills-") as place:
        expected = run_whole(trial, Path(place) / "whole")
        print(f"an unbroken run leaves {len(expected)} files", flush=True)
        while count.kills < kills:
            folder = Path(place) / f"round-{count.rounds}"
            run_killed(trial, folder, chance, count, kills)
            compare(trial.outcome(folder), expected)
            count.rounds += 1
            print(f"round {count.rounds}: {count.by_round[-1]} kills, the same end", flush=True)
    return count


@contextmanager
def slow_server(content: bytes, block: int = 1 << 16, pause: float = 0.01) -> Iterator[str]:
    """Serves the content, in whole or from where it is asked to go on; slowly."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            self.send_response(206 if wanted else 200)
            self.send_header("ETag", '"kills"')
            self.send_header("Content-Length", str(len(content) - first))
            if wanted:
                whole = len(content)
                self.send_header("Content-Range", f"bytes {first}-{whole - 1}/{whole}")
            self.end_headers()
            try:
                for begin in range(first, len(content), block):
                    self.wfile.write(content[begin : begin + block])
                    time.sleep(pause)
            except ConnectionError:
                return  # the other side was killed

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/file.tar"
    server.shutdown()


@contextmanager
def trial_of(arguments: argparse.Namespace, words: Sequence[str]) -> Iterator[Trial]:
    """What is to be killed; with its server, if it needs one."""
    if arguments.what == "bench":
        yield Trial(BENCH, figures_of, arguments.within or 20.0)
    elif arguments.what == "save":
        yield Trial([sys.executable, "-c", SAVE, "{folder}"], state_of, arguments.within or 1.0)
    elif arguments.what == "command":
        yield Trial(words, files_of, arguments.within or 3.0)
    else:
        content = random.Random(1).randbytes(50_000_000)  # noqa: S311 - no secret
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        with slow_server(content) as url:
            facts = ["file.tar", url, str(len(content)), md5, "{folder}"]
            words = [sys.executable, "-c", FETCH, *facts]
            yield Trial(words, files_of, arguments.within or 3.0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills at random moments; the end is the same.")
    parser.add_argument("what", choices=["bench", "save", "download", "command"])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--within", type=float, help="seconds after the first line")
    parser.add_argument("--seed", type=int, default=0)
    given = [*sys.argv[1:], "--"]
    at = given.index("--")
    arguments, words = parser.parse_args(given[:at]), given[at + 1 : -1]
    begin = time.monotonic()
    with trial_of(arguments, words) as trial:
        try:
            count = try_it(trial, arguments.kills, arguments.seed)
        except Broken as harm:
            print(f"broken: {harm}")
            return 1
    print(
        f"{count.kills} kills, {count.alone} of them of the first process only, in {count.rounds} "
        f"rounds and {time.monotonic() - begin:.0f} s: nothing lost, every end as without a kill"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
