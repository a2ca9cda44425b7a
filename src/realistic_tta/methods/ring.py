"""Rows for a ring, a tensor whose oldest rows are overwritten; written last, and only they.

A bank of thousands of rows takes in a few a batch: a method names them, and `remember` in base.py
writes them when the batch is through. Used by methods/adacontrast.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class NewRows:
    """Rows on their way to the ring's places from position on, round its end; of many, the last.

    ring: (entry, ...), as it still is. position: how many rows came before. rows: (row, ...).
    """

    ring: Tensor
    position: int
    rows: Tensor

    def written(self) -> Tensor:
        """A copy of the ring with the rows in it.

        >>> import torch
        >>> ring, rows = torch.zeros(3, device="cpu"), torch.tensor([1.0, 2.0], device="cpu")
        >>> NewRows(ring, 2, rows).written().tolist()
        [2.0, 0.0, 1.0]
        """
        ring = self.ring.clone()
        for places, rows in self._places(ring):
            places.copy_(rows)
        return ring

    def copies_into(self, buffer: Tensor) -> list[tuple[Tensor, Tensor]]:
        """What to copy where, for the buffer to be as `written`: the rows, if it is the ring."""
        return self._places(buffer) if buffer is self.ring else [(buffer, self.written())]

    def _places(self, ring: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Parts of the ring and the rows that go there: up to its end, and from its beginning."""
        rows = self.rows[max(0, len(self.rows) - len(ring)) :]
        start = (self.position + len(self.rows) - len(rows)) % len(ring)
        fit = min(len(rows), len(ring) - start)
        return [(ring[start : start + fit], rows[:fit]), (ring[: len(rows) - fit], rows[fit:])]


def written(values: Mapping[str, Tensor | NewRows]) -> dict[str, Tensor]:
    """The same with all rings written."""
    return {
        name: value.written() if isinstance(value, NewRows) else value
        for name, value in values.items()
    }
