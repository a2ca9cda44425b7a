"""What the guard keeps of two networks' answers."""

from __future__ import annotations

import torch
from torch import Tensor

from realistic_tta.methods.judge import information
from realistic_tta.methods.pairs import Pairs


def drawn(count: int, seed: int) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def test_the_last_batches_that_fill_a_window_are_kept() -> None:
    pairs = Pairs()
    for seed in range(6):
        pairs.add(drawn(3, seed), drawn(3, seed + 50), window=7)
    assert len(pairs) == 9
    adapted, source = pairs.joined()
    assert torch.equal(adapted, torch.cat([drawn(3, seed) for seed in (3, 4, 5)]))
    assert torch.equal(source, torch.cat([drawn(3, seed + 50) for seed in (3, 4, 5)]))


def test_what_they_tell_is_that_of_the_pairs_of_now() -> None:
    """Asked for before and after each one that comes, and each that goes."""
    pairs = Pairs()
    for seed in range(6):
        pairs.add(drawn(3, seed), drawn(3, seed + 50), window=7)
        expected = information(pairs.joined()[0])
        assert pairs.information() == pairs.information() == expected
    assert Pairs(pairs.batches[1:]).information() != pairs.information()
