"""Statistics of several processes as if all their images were one batch (torch.distributed).

Each process adapts its own copy of the model to its own images. At every BatchNorm layer the
statistics of all processes are merged, so that all copies stay identical. Every method here is a
collective call: all processes of the group have to make it.
"""

from __future__ import annotations

import contextlib
from typing import Any, Self

import torch
from torch import Tensor, distributed

from realistic_tta.errors import DistributedError, InputError, OptionError
from realistic_tta.functional.channel_statistics import (
    ChannelStatistics,
    measure,
    merge,
    values_per_channel,
)

_REFUSED = -1  # sent in place of a number of images


class ProcessGroup:
    """The processes that share their statistics.

    group: a group of torch.distributed, for instance torch.distributed.group.WORLD.
    """

    def __init__(self, group: Any) -> None:
        if not distributed.is_available() or not distributed.is_initialized():
            raise OptionError(
                "process_group needs an initialized torch.distributed; call "
                'torch.distributed.init_process_group(...) first, with "gloo" on CPUs'
            )
        if not isinstance(group, distributed.ProcessGroup):
            raise OptionError(
                f"process_group is {group!r}; expected a group of torch.distributed, "
                "for instance torch.distributed.group.WORLD"
            )
        self._group = group
        self._batches: Tensor | None = None

    def begin(self, images: int, batches: Tensor) -> int:
        """The number of images that all processes bring to the next batch.

        batches: how many batches this process has seen; raises if the processes differ.
        """
        self._batches = batches
        sent = self._gather(torch.stack([batches.new_tensor(images), batches]))  # (process, 2)
        counts, seen = (column.tolist() for column in sent.unbind(dim=1))
        if _REFUSED in counts and images != _REFUSED:
            raise DistributedError(
                f"rank {counts.index(_REFUSED)} refused its batch, so no rank adapts to its own. "
                "Nothing was changed; call all ranks again, that one with a valid batch"
            )
        if len(set(seen)) > 1:
            raise DistributedError(
                f"the ranks are out of step: they have seen {seen} batches. "
                "Start all of them from the same state, and call each as often as the others"
            )
        if not sum(counts):
            raise InputError("no rank has an image; expected at least one among all of them")
        return int(sum(counts))

    def refuse(self, batches: Tensor) -> None:
        """Takes the place of `begin` if the batch is invalid, so that the others do not wait."""
        with contextlib.suppress(DistributedError, InputError):  # the caller has a better error
            self.begin(_REFUSED, batches)

    def agree(self) -> None:
        """Returns when every process has predicted; if one fails, none commits."""
        assert self._batches is not None  # begin came first
        self._gather(self._batches)

    def image_statistics(self, inputs: Tensor) -> ChannelStatistics:
        """The same as functional.shrinkage.image_statistics, of the images of all processes."""
        (mean, variance), _ = self.measure(inputs, correction=0, min_values=1)
        images = inputs.flatten(2).mean(dim=2) if inputs.ndim > 2 else inputs
        (_, between), _ = self.measure(images, correction=0, min_values=1)
        return ChannelStatistics(mean, torch.stack((variance, between)))

    def measure(
        self, inputs: Tensor, correction: int, min_values: int = 2
    ) -> tuple[ChannelStatistics, int]:
        """Statistics of the inputs of all processes, and the number of values per channel."""
        count, channels = values_per_channel(inputs), inputs.shape[1]
        if count:
            mean, variance = (statistic.double() for statistic in measure(inputs))
        else:
            mean = variance = inputs.new_zeros(channels, dtype=torch.float64)
        own = torch.cat([mean.new_tensor([count]), mean, variance * count])
        counts, means, squares = self._gather(own).split([1, channels, channels], dim=1)
        total = int(counts.sum())
        if total < min_values:
            raise InputError(
                f"the ranks have {total} value per channel together, which has no variance. "
                "Give 2 or more images, or larger ones"
            )
        merged = merge(counts, means, squares, correction)
        dtype = torch.promote_types(inputs.dtype, torch.float32)
        return ChannelStatistics(*(statistic.to(dtype) for statistic in merged)), total

    def add(self, own: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        return self._gather(own).sum(dim=0)

    def _gather(self, own: Tensor) -> Tensor:
        """The tensors of all processes, (process, ...), bit-identical on each of them."""
        own = own.contiguous()
        everyone = [torch.empty_like(own) for _ in range(distributed.get_world_size(self._group))]
        try:
            distributed.all_gather(everyone, own, group=self._group)
        except RuntimeError as error:
            raise DistributedError(
                "the other ranks could not be reached: one has left, failed, or is slower than the "
                "group's timeout. Nothing was changed: save the state, make a new group, and load "
                f"it there. torch.distributed says: {error}"
            ) from error
        return torch.stack(everyone)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Unpickles as None: a group lives in its process."""
        return type(None), ()
