"""What an adapted pass is made of: each part switched on after the other, over the plain forward.

    python benchmarks/parts.py
    python benchmarks/parts.py --batch-sizes 1 --compiled

One torch thread, ResNet-20, rectified_tema; every figure in turns with the plain forward. With
--compiled, also how much of a compiled batch is spent in convolutions, which are a library's.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence

import torch
from timing import compare
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import realistic_tta
from realistic_tta.layers.statistics_rules import (
    FixedStatistics,
    MovingAverage,
    RectifiedMovingAverage,
    StatisticsRule,
)
from realistic_tta.methods.batch import Batch
from realistic_tta.methods.batch_norm_method import BatchNormMethod
from realistic_tta.models.resnet import CifarResNet


def parts(plain: nn.Module, images: Tensor) -> dict[str, Callable[[], object]]:
    """From a pass that measures nothing to the whole algorithm; each holds the one before."""
    once, exact = (realistic_tta.adapt(plain, "rectified_tema", passes=each) for each in (1, 2))
    assert isinstance(once, BatchNormMethod)
    once(images)
    batch = Batch.of(once.network, (images,), {})
    _, averages = once.carry_on()
    before, source = once.by_layer(once.target), once.by_layer(once.source)
    weights = torch.full((len(averages),), 0.25).unbind()

    def fixed() -> Sequence[StatisticsRule]:
        return [FixedStatistics(each) for each in source]

    def averaged() -> Sequence[StatisticsRule]:
        return [MovingAverage(*each, 0.01) for each in zip(averages, before, strict=True)]

    def mixed() -> Sequence[StatisticsRule]:
        every = zip(averages, before, source, weights, strict=True)
        return [RectifiedMovingAverage(a, b, 0.01, s, w) for a, b, s, w in every]

    return {
        "a pass with fixed statistics": lambda: once.run_with(batch, fixed()),
        "+ measuring and averaging": lambda: once.run_with(batch, averaged()),
        "+ mixing with the source": lambda: once.run_with(batch, mixed()),
        "+ checks, divergence, storing (passes=1)": lambda: once(images),
        "+ the second pass (exact)": lambda: exact(images),
    }


def in_convolutions(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Milliseconds of a call, and those of them in convolutions."""
    for _ in range(4):
        call()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(repeats):
            call()
    events = profiled.key_averages()
    whole = sum(event.self_cpu_time_total for event in events)
    inside = sum(event.self_cpu_time_total for event in events if "conv" in event.key)
    return whole / repeats / 1e3, inside / repeats / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batch-sizes", default="200,16,1")
    parser.add_argument("--seconds", type=float, default=30.0, help="most, for each batch size")
    parser.add_argument("--compiled", action="store_true", help="minutes more")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain = CifarResNet(20, 10).eval()
    for size in map(int, arguments.batch_sizes.split(",")):
        images = torch.rand(size, 3, 32, 32)
        with torch.no_grad():
            print(f"\nbatch size {size:<41}plain forwards")
            found = compare(lambda: plain(images), parts(plain, images), arguments.seconds)  # noqa: B023
            for name, ratio in found.items():
                print(f"{name:52}{ratio}")
            if arguments.compiled:
                _print_compiled(plain, images)


def _print_compiled(plain: nn.Module, images: Tensor) -> None:
    print(f"{'':44}milliseconds  in convolutions")
    compiled = torch.compile(copy.deepcopy(plain), fullgraph=True, dynamic=False)
    adapted = realistic_tta.adapt(plain, "rectified_tema", passes=1, compile=True)
    for name, network in (
        ("plain, eager", plain),
        ("plain, compiled", compiled),
        ("passes=1, compiled", adapted),
    ):
        whole, inside = in_convolutions(lambda: network(images), max(3, 200 // len(images)))  # noqa: B023
        print(f"{name:44}{whole:12.2f}{inside:17.2f}", flush=True)


if __name__ == "__main__":
    main()
