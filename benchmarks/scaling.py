"""What a whole benchmark of ImageNet-C would take: experiments, GPU-hours, GPUs for one day.

    python benchmarks/scaling.py                          the tables in docs/scaling.md
    python benchmarks/scaling.py --photographs FOLDER     first measures the decoding of JPEGs

What a pass of the plain network takes on a GPU is assumed; how many passes a method takes is the
benchmark's own estimate (benchmark/estimate.py), from figures measured on a CPU.
"""

from __future__ import annotations

import argparse
import heapq
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from realistic_tta.benchmark.estimate import PASSES, batches_of
from realistic_tta.benchmark.experiment import Experiment, grid
from realistic_tta.data.imagenet import open_imagenet, read_photograph

IMAGES, PARTS, DAY = 50_000, 15, 24 * 3600
SIZES, SEEDS = [200, 64, 16, 4, 2, 1], [1, 2, 3]
SHARED_BY = 4  # experiments on one GPU, at most


@dataclass(frozen=True)
class Speed:
    """images: a second through the plain network at large batches. launch: seconds that a pass
    takes at least, however few images it has. decoded: JPEGs a second and core.
    """

    images: float
    launch: float
    decoded: float

    def pass_seconds(self, batch_size: int) -> float:
        return max(self.launch, batch_size / self.images)

    def seconds(self, each: Experiment) -> float:
        """Decoding is done by the process that runs the method, in turns with it."""
        passes = PASSES.get(each.method, 1) * batches_of(each, IMAGES)
        return passes * self.pass_seconds(each.batch_size) + PARTS * IMAGES / self.decoded

    def share(self, each: Experiment) -> float:
        """Of a GPU that the experiment needs, if others may use the rest."""
        busy = each.batch_size / self.images / self.pass_seconds(each.batch_size)
        return max(busy, 1 / SHARED_BY)


def whole_grid() -> list[Experiment]:
    """Source errs alike at every batch size and seed: one run stands for its eighteen."""
    axes: dict[str, object] = {"data": "imagenet-c", "network": "resnet-50-torchvision"}
    axes |= {"batch_size": SIZES, "seed": SEEDS}
    return [
        each
        for each in grid(axes)
        if each.method not in ("realistic", "domains")  # the twelve of the paper
        and (each.method != "source" or (each.batch_size, each.seed) == (SIZES[0], SEEDS[0]))
    ]


def last_end(durations: Sequence[float], gpus: int) -> float:
    """Seconds until all are done, the longest first, each on the GPU that is free first."""
    free = [0.0] * gpus
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def gpus_for_a_day(durations: Sequence[float]) -> int:
    """The fewest; none is enough if one experiment takes longer."""
    gpus = max(1, int(sum(durations) / DAY))
    while last_end(durations, gpus) > DAY:
        gpus += 1
    return gpus


def decoded_a_second(folder: Path, seconds: float) -> float:
    """Photographs of 224 px a second of one core's own time: other programs do not count."""
    files = open_imagenet(folder).files
    begin, count = time.process_time(), 0
    while (gone := time.process_time() - begin) < seconds:
        read_photograph(files[count % len(files)])
        count += 1
    return count / gone


def print_hours(experiments: Sequence[Experiment], speed: Speed) -> None:
    """A row a method: hours of one experiment at each batch size, GPU-hours over all seeds."""
    print(f"{'hours':15}" + "".join(f"{size:>7}" for size in SIZES) + "   GPU-hours")
    for method in dict.fromkeys(each.method for each in experiments):
        own = [each for each in experiments if each.method == method]
        hours = {each.batch_size: speed.seconds(each) / 3600 for each in own}
        cells = "".join(f"{hours[size]:7.1f}" if size in hours else f"{'':7}" for size in SIZES)
        print(f"{method:15}{cells}{sum(map(speed.seconds, own)) / 3600:12.0f}")


def print_plan(name: str, chosen: Sequence[Experiment], speed: Speed) -> None:
    durations = [speed.seconds(each) for each in chosen]
    longest, hours = max(durations) / 3600, sum(durations) / 3600
    needed = f"no number of GPUs: one run takes {longest:.0f} h"
    if longest <= 24:
        needed = f"{gpus_for_a_day(durations)} GPUs"
    print(f"{name:42}{len(chosen):5}{hours:11.0f}   {needed}")


def print_shared_plan(name: str, chosen: Sequence[Experiment], speed: Speed) -> None:
    """At best: runs that share a GPU do not wait for each other at all."""
    hours = sum(speed.seconds(each) * speed.share(each) for each in chosen) / 3600
    print(f"{name:42}{len(chosen):5}{hours:11.0f}   {math.ceil(hours / 24)} GPUs, at best")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images-a-second", type=float, default=1500, help="assumed")
    parser.add_argument("--launch", type=float, default=0.008, help="seconds of a pass; assumed")
    parser.add_argument("--decoded", type=float, default=1100, help="JPEGs a second and core")
    parser.add_argument("--photographs", type=Path, help="measure that on these")
    arguments = parser.parse_args()

    decoded = arguments.decoded
    if arguments.photographs:
        decoded = decoded_a_second(arguments.photographs, 10)
        print(f"{decoded:.0f} photographs decoded a second, one core\n")
    speed = Speed(arguments.images_a_second, arguments.launch, decoded)
    everything = whole_grid()
    print_hours(everything, speed)
    print(f"\n{'':42}{'runs':>5}{'GPU-hours':>11}   in a day")
    day = [each for each in everything if speed.seconds(each) <= DAY]
    print_plan("everything", everything, speed)
    print_plan("what takes less than a day", day, speed)
    print_shared_plan(f"the same, up to {SHARED_BY} runs a GPU", day, speed)


if __name__ == "__main__":
    main()
