"""Statistics of several processes as if all their images were one batch (torch.distributed).

Each process, a rank, adapts a network of its own to its own images; at every BatchNorm layer the
ranks' statistics are merged, so that all keep the same. Used by statistics_rules.py and
remembered_statistics.py, which measure, and methods/base.py, which asks how many images came in
all.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, distributed

from realistic_tta.errors import DistributedError, InputError, SettingError
from realistic_tta.functional.channel_statistics import (
    ChannelStatistics,
    measure,
    values_per_channel,
)

_REFUSED = -1  # said in place of a number of images


class Replicas:
    """All ranks of torch.distributed's default group. Every call is one that all have to make."""

    def __init__(self) -> None:
        if not distributed.is_available() or not distributed.is_initialized():
            raise SettingError(
                'sync="torch.distributed" needs a process group; call '
                'torch.distributed.init_process_group(...) first, "gloo" on CPUs'
            )
        self.counts: list[int] = []  # of the images that each rank brings to this batch

    def begin(self, images: int, step: Tensor) -> int:
        """How many images all ranks bring to the next batch; raises if they are out of step."""
        said = self._gather(torch.stack([step.new_tensor(images), step]))  # (rank, 2)
        counts, steps = (column.tolist() for column in said.unbind(dim=1))
        if _REFUSED in counts and images != _REFUSED:
            raise DistributedError(
                f"rank {counts.index(_REFUSED)} refused its batch, so that no rank takes its own. "
                "Nothing was changed; call all of them again, that one with a better batch"
            )
        if len(set(steps)) > 1:
            raise DistributedError(
                f"the ranks are out of step: they have seen {steps} batches. "
                "Start all of them from the same state, and call each as often as the others"
            )
        if not sum(counts):
            raise InputError("no rank has an image; expected at least one among all of them")
        self.counts = [int(count) for count in counts]
        return sum(self.counts)

    def refuse(self, step: Tensor) -> None:
        """In place of `begin`, where the batch cannot be predicted: the others need not wait."""
        with contextlib.suppress(DistributedError, InputError):  # there is a better error to raise
            self.begin(_REFUSED, step)

    def agree(self, step: Tensor) -> None:
        """Returns when every rank has predicted; whatever one cannot keep, none keeps."""
        self._gather(step)

    def measure(
        self, inputs: Tensor, correction: int, each: int = 1, least: int = 2
    ) -> tuple[ChannelStatistics, int]:
        """Statistics of all ranks' inputs together, and how many values a channel they are.

        each: how many every one of the inputs counts for, where they are averages themselves.
        least: how many values it takes.
        """
        count, channels = each * values_per_channel(inputs), inputs.shape[1]
        if count:
            mean, variance = (statistic.double() for statistic in measure(inputs))
        else:  # a rank without images takes part, and counts for nothing
            mean = variance = inputs.new_zeros(channels, dtype=torch.float64)
        own = torch.cat([mean.new_tensor([count]), mean, variance * count])
        counts, means, squares = self._gather(own).split([1, channels, channels], dim=1)
        total = int(counts.sum())
        if total < least:
            raise InputError(
                f"the ranks have {total} value a channel together, which has no variance. "
                "Give 2 or more images, or larger ones"
            )
        merged = merge(counts, means, squares, correction)
        dtype = torch.promote_types(inputs.dtype, torch.float32)
        return ChannelStatistics(*(statistic.to(dtype) for statistic in merged)), total

    def join(self, own: Tensor) -> tuple[Tensor, slice]:
        """The rows of all ranks, one rank's after another's, and where the own ones are.

        own: a row for each of the images that `begin` was told of; of any other number NaN is made,
        for all ranks to see.
        """
        rank = distributed.get_rank()
        count, start = self.counts[rank], sum(self.counts[:rank])
        rows = own.new_full((max(self.counts), own.shape[1]), torch.nan)
        if len(own) == count:
            rows[:count] = own
        parts = zip(self._gather(rows).unbind(), self.counts, strict=True)
        return torch.cat([part[:count] for part, count in parts]), slice(start, start + count)

    def add(self, own: Tensor) -> Tensor:
        """The sum of what each rank brings."""
        return self._gather(own).sum(dim=0)

    def _gather(self, own: Tensor) -> Tensor:
        """The same of every rank, (rank, ...); identical to the bit on all of them."""
        own = own.contiguous()
        everyone = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
        try:
            distributed.all_gather(everyone, own)
        except RuntimeError as error:
            raise DistributedError(
                "the other ranks could not be reached: one has left, failed, or is slower than the "
                "group's timeout. Nothing was changed: save the state, make a new group, and load "
                f"it there. torch.distributed says: {error}"
            ) from error
        return torch.stack(everyone)


def merge(counts: Tensor, means: Tensor, squares: Tensor, correction: int) -> ChannelStatistics:
    """Mean and variance of all parts together, from those of each (Chan 1979).

        mean     = sum of counts * means / total
        variance = sum of (squares + counts * (means - mean) ** 2) / (total - correction)

    counts: (part, 1). means, squares: (part, channel), the latter summed squared deviations.

    >>> one, two = torch.tensor([[[1.0], [1.0]], [[1.0], [3.0]]], device="cpu")
    >>> [statistic.item() for statistic in merge(one, two, 0 * one, correction=1)]
    [2.0, 2.0]
    """
    total = counts.sum()
    mean = (counts * means).sum(dim=0) / total  # (channel,)
    deviations = squares + counts * (means - mean).square()
    return ChannelStatistics(mean, deviations.sum(dim=0) / (total - correction))
