from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.domains import (
    Domains,
    belief,
    recognise,
)

FEATURES, PARTS = 24, 4
DECAYS = torch.tensor(0.1 ** (1 / 1024)), torch.tensor(0.1 ** (1 / 128))


def known(domains: int = 4) -> Domains:
    return Domains.none(domains, FEATURES, torch.zeros(1))


def shown(kinds: list[int], seed: int = 0, apart: float = 12.0) -> tuple[Tensor, Tensor]:
    """Signatures of images of these kinds, and of their parts; kinds lie apart in one direction.

    Content differs a hundred times as much in one direction, inside an image and from one to the
    next, as it does in the others; parts, which are smaller, differ more than images.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([10.0, *[1.0] * (FEATURES - 1)])
    level = torch.zeros(len(kinds), FEATURES)
    level[:, 1] = apart * torch.tensor(kinds)
    whole = level + 0.7 * scale * torch.randn(len(kinds), FEATURES, generator=generator)
    parts = torch.randn(len(kinds), PARTS, FEATURES, generator=generator) * scale
    return whole, parts + whole[:, None]


def places_of(kinds: list[int], size: int, domains: int = 4) -> tuple[list[int], Domains]:
    """Where the images of such a stream were put, in batches of one size."""
    state, places = known(domains), []
    for whole, parts in zip(*(each.split(size) for each in shown(kinds)), strict=True):
        found = recognise(state, whole, parts, *DECAYS)
        state = found.after
        places += found.places.tolist()
    return places, state


TURNS = [0, 1, 1, 0, 1, 0, 0, 1] * 12


@pytest.mark.parametrize("size", [1, 16, 96])
def test_two_kinds_that_take_turns_are_told_apart(size: int) -> None:
    """Though content differs by as much as they do, in another direction."""
    places, _ = places_of(TURNS, size)
    kinds = np.array(TURNS[32:])
    groups = [set(kinds[np.array(places[32:]) == place].tolist()) for place in set(places[32:])]
    assert all(len(group) == 1 for group in groups)


def test_one_kind_stays_one() -> None:
    places, _ = places_of([0] * 96, 1)
    assert np.mean(np.array(places) == places[0]) > 0.95


def test_what_is_remembered_of_a_kind_is_the_mean_of_its_images() -> None:
    whole, parts = shown([0] * 20)
    one = torch.tensor(1.0)
    found = recognise(known(1), whole, parts, one, one)
    assert found.places.tolist() == [0] * 20
    torch.testing.assert_close(found.after.signature[0], whole.mean(dim=0), atol=1e-5, rtol=1e-4)
    assert found.after.images.tolist() == [20.0]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 40))
def test_a_new_kind_never_takes_the_place_of_one_in_its_batch(kinds: list[int], size: int) -> None:
    """Nine kinds have room for three: every image finds a place, and none of a batch is lost."""
    state = known(3)
    for whole, parts in zip(*(each.split(size) for each in shown(kinds, apart=100.0)), strict=True):
        found = recognise(state, whole, parts, *DECAYS)
        for place in range(3):
            mine = int((found.places == place).sum())
            before = 0.0 if found.fresh[place] else state.images[place].item()
            assert found.after.images[place].item() == pytest.approx(
                sum(DECAYS[0].item() ** age for age in range(mine))
                + DECAYS[0].item() ** mine * before,
                rel=1e-4,
            )
        state = found.after


def test_looking_changes_nothing() -> None:
    whole, parts = shown(TURNS[:8])
    state = recognise(known(), whole, parts, *DECAYS).after
    copies = [each.clone() for each in state]
    recognise(state, whole + 50, parts, *DECAYS)
    assert all(torch.equal(one, other) for one, other in zip(state, copies, strict=True))


@pytest.mark.parametrize(
    ("of_kind", "of_all", "expected"),
    [(0, 0, 0.0), (700, 1000, 1.0), (822, 1000, 0.5), (900, 1000, 0.0), (1500, 1000, 0.0)],
)
def test_kinds_are_believed_as_far_as_they_foretell_better(
    of_kind: float, of_all: float, expected: float
) -> None:
    found = belief(torch.tensor([of_kind, of_all]), torch.tensor(0.0))
    assert found.item() == pytest.approx(expected, abs=0.1)


def test_what_is_believed_is_held_on_to_a_little_longer() -> None:
    foretold = torch.tensor([850.0, 1000.0])
    assert belief(foretold, torch.tensor(0.0)).item() == pytest.approx(0, abs=0.1)
    assert belief(foretold, torch.tensor(1.0)).item() == pytest.approx(1, abs=0.1)


def test_the_first_images_are_not_believed() -> None:
    """A kind of which two images have been foretold well may be chance."""
    assert belief(torch.tensor([1.0, 2.0]), torch.tensor(0.0)).item() == 0
