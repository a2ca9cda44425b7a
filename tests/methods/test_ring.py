"""Rows for a ring, against a list that grows without end."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from realistic_tta.methods.ring import NewRows, written


@pytest.mark.parametrize("sizes", [[3, 3, 3], [1] * 20, [7], [2, 16, 5], [9, 8, 7, 0, 1]], ids=str)
def test_a_ring_holds_the_last_rows_in_their_places(sizes: list[int]) -> None:
    """Written into the ring itself, into another buffer, or into a copy."""
    ring, other, seen = torch.full((7, 2), -1.0), torch.empty(7, 2), 0
    everything: list[Tensor] = []
    for size in sizes:
        rows = torch.arange(seen, seen + size).float()[:, None].repeat(1, 2)
        new, before = NewRows(ring, seen, rows), ring.clone()
        copied = written({"ring": new, "other": other})
        assert copied["other"] is other
        assert torch.equal(ring, before)
        for buffer in (other, ring):  # the ring last: from then on the rows are in it
            for place, value in new.copies_into(buffer):
                place.copy_(value)
        everything += list(rows)
        seen += size
        expected = torch.full((7, 2), -1.0)
        for number in range(max(0, seen - 7), seen):
            expected[number % 7] = everything[number]
        for found in (ring, other, copied["ring"]):
            assert torch.equal(found, expected)


def test_only_the_new_rows_of_a_ring_are_touched() -> None:
    """What a batch costs does not grow with the ring."""
    ring = torch.zeros(1000, 3)
    copies = NewRows(ring, 998, torch.ones(5, 3)).copies_into(ring)
    assert [len(place) for place, _ in copies] == [2, 3]
    assert all(place.untyped_storage().data_ptr() == ring.data_ptr() for place, _ in copies)
