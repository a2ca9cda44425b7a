"""What the benchmark's runner costs besides the methods, and what a second worker brings.

    make bench
    python benchmarks/runner.py --images 16 --repeats 1

Batch size 1, where everything around the model is felt most. The same experiments are run by one
worker and by two, in turns; time counts from the first batch to the last record, so that starting
processes is left out. Overhead is what a record's `seconds` have over its `method_seconds`: reading
images, counting, telling. The target of two workers needs two idle cores; overhead is a ratio
inside one process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from realistic_tta.benchmark.datasets import prepare
from realistic_tta.benchmark.engines import run_local
from realistic_tta.benchmark.events import Finished, Progress
from realistic_tta.benchmark.experiment import Experiment, grid
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.benchmark.runner import make_jobs

METHODS = ("source", "tbn", "tema", "rectified_tema")  # the plain model is the hardest case
SPEEDUP, OVERHEAD = 1.8, 3.0  # at least; at most, in percent


def run(experiments: Sequence[Experiment], data: Path, workers: int) -> tuple[float, list[Record]]:
    """Seconds from the first batch on, and the records; nothing is kept."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").symlink_to(data / "data")
        begin = 0.0
        for event in run_local(make_jobs(experiments, folder), folder, workers):
            if not begin and isinstance(event, Progress | Finished):
                begin = time.perf_counter()
        return time.perf_counter() - begin, Results(folder).read(status="done")


def overhead(record: Record) -> float:
    """In percent of the method's own time."""
    assert record.seconds is not None
    assert record.method_seconds is not None
    return 100 * (record.seconds / record.method_seconds - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=int, default=64, help="of each corruption")
    parser.add_argument("--repeats", type=int, default=2, help="of the runs by one and by two")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    axes = {"datasets": "cifar10-c-sample", "batch_sizes": 1, "images": arguments.images}
    experiments = grid(axes | {"methods": METHODS, "seeds": [1, 2]})
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}; batch size 1,")
    print(f"{len(experiments)} experiments of {15 * arguments.images} images")
    seconds: dict[int, list[float]] = {1: [], 2: []}
    alone: list[Record] = []
    with tempfile.TemporaryDirectory() as name:
        prepare("cifar10-c-sample", experiments[0].plan, Path(name), workers=1)
        for _ in range(arguments.repeats):
            for workers, times in seconds.items():
                taken, records = run(experiments, Path(name), workers)
                times.append(taken)
                alone += records if workers == 1 else []
    one, two = map(statistics.median, seconds.values())
    print(f"\none worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} times as fast", end="")
    print(f" (target: {SPEEDUP} on two idle cores)")
    print(f"\nthe runner's overhead, percent of the method's time (target: under {OVERHEAD:.0f})")
    for method in METHODS:
        found = [overhead(record) for record in alone if record.method == method]
        print(f"{method:16}{statistics.median(found):6.2f}")


if __name__ == "__main__":
    main()
