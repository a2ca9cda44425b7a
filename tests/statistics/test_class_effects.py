"""Effects of classes against means by hand, a ridge regression in NumPy, and properties."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.statistics.class_effects import (
    MOST_GROUPS,
    Directions,
    Effects,
    Runs,
    directions,
    find_runs,
    learn,
    to_groups,
    watch,
    without_class,
)

ONLY_RUNS = torch.tensor([1.0, 0.0])


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def known(effects: Tensor, runs: Tensor = ONLY_RUNS, images: float = 400.0) -> Effects:
    return Effects(effects, effects.new_full((len(effects),), images), runs.to(effects))


@given(st.permutations(range(5)))
def test_a_memory_without_its_classes_is_the_same_in_any_order(order: list[int]) -> None:
    """Whichever classes came last: what is left is what all of them have."""
    effects = random(5, 7)
    effects = effects - effects.mean(dim=0)
    domain = random(7, seed=1)
    last = torch.zeros(5, dtype=torch.float64)
    last[order[:2]] = torch.tensor([0.7, 0.3], dtype=torch.float64)
    shares = torch.stack((torch.full_like(last, 0.2), last))
    memories = domain + shares @ effects
    runs = find_runs(known(effects, images=1e9), shares, shortest=1)
    left = memories - runs.apart @ runs.effects
    torch.testing.assert_close(left, domain.expand(2, -1), atol=1e-6, rtol=1e-6)


def test_nothing_is_taken_out_where_labels_do_not_come_in_runs() -> None:
    shares = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    runs = find_runs(known(random(2, 4).float(), torch.tensor([0.12, 0.1])), shares, shortest=1)
    assert runs.apart.abs().max() == 0
    assert runs.variance == 0


def test_a_class_of_which_eight_images_were_seen_is_half_believed() -> None:
    effects = torch.tensor([[2.0], [-2.0]])
    assert known(effects, images=8.0).believed().tolist() == [[1.0], [-1.0]]


def ridge(effects: Tensor, images: int, spread: float, variance: float, batch: Tensor) -> Tensor:
    """The share of each class that explains the batch, in NumPy.

    It minimises |batch - shares @ effects| ** 2 / noise + |shares| ** 2 / variance.
    """
    own, given = effects.numpy(), batch.numpy()[0]
    noise = spread / own.shape[1] / images
    found = np.linalg.solve(own @ own.T + noise / variance * np.eye(len(own)), own @ given)
    return torch.from_numpy(found)


def test_what_classes_may_have_added_is_a_ridge_regression_in_every_layer() -> None:
    effects, sizes, spread = random(3, 10) * 3, [4, 6], torch.tensor([2.0, 5.0]).double()
    runs = Runs(effects, effects.new_zeros(2, 3), torch.tensor(0.2).double())
    layers = directions(runs, spread, sizes, images=16)
    for layer, size, each in zip(layers, sizes, spread.tolist(), strict=True):
        own = layer.effects
        usual, batch = random(1, size, seed=4), random(1, size, seed=4) + 0.3 * own[:1]
        found = ridge(own, 16, each, 0.2, batch - usual)
        assert found.norm() < 1
        torch.testing.assert_close(without_class(batch, usual, layer), batch - found @ own)


@given(st.integers(0, 50), st.floats(0.1, 1e4))
def test_no_more_is_taken_out_than_one_class_can_add(seed: int, far: float) -> None:
    effects = random(3, 6, seed=seed)
    layer = directions(
        Runs(effects, effects.new_zeros(1, 3), torch.tensor(0.3).double()),
        torch.ones(1, dtype=torch.float64),
        [6],
        images=64,
    )[0]
    usual, batch = effects.new_zeros(1, 6), far * random(1, 6, seed=seed + 100)
    taken = batch - without_class(batch, usual, layer)
    largest = torch.linalg.matrix_norm(effects, 2)
    assert taken.norm() <= largest * (1 + 1e-9)


def test_what_no_class_adds_is_left_as_it_is() -> None:
    effects = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    layer = Directions(effects, effects * 0.5)
    batch = torch.tensor([[0.3, 2.0, -5.0]])
    left = without_class(batch, torch.zeros(1, 3), layer)
    assert left[0, 1:].tolist() == batch[0, 1:].tolist()
    assert abs(left[0, 0]) < 1e-6


def test_effects_are_the_mean_of_each_classes_images_about_the_centre() -> None:
    moments, answers, centre = random(40, 6), torch.arange(40) % 7 % 4, random(6, seed=9)
    named = torch.nn.functional.one_hot(answers, 4).double()
    effects = Effects.none(4, 6, moments)
    for part in torch.arange(40).split([1, 13, 26]):
        told = named[part]
        effects = learn(effects, told.T @ moments[part], told.sum(dim=0), centre)
    expected = torch.stack([(moments[answers == each] - centre).mean(dim=0) for each in range(4)])
    torch.testing.assert_close(effects.moments, expected)
    assert effects.images.tolist() == [(answers == each).sum().item() for each in range(4)]


def test_a_wild_image_moves_an_effect_by_no_more_than_ten() -> None:
    before = known(torch.zeros(2, 3, dtype=torch.float64), images=99.0)
    told = torch.tensor([1.0, 0.0]).double()
    after = learn(before, torch.outer(told, torch.full((3,), 1e9).double()), told, random(3))
    assert after.moments.abs().max() == 10 / 100


def test_a_class_that_is_not_there_keeps_its_effect() -> None:
    before = known(random(3, 5), images=2.0)
    told = torch.tensor([0.0, 4.0, 0.0]).double()
    after = learn(before, torch.outer(told, random(5)), told, random(5, seed=3))
    assert torch.equal(after.moments[[0, 2]], before.moments[[0, 2]])
    assert not torch.equal(after.moments[1], before.moments[1])


def test_a_thousand_classes_share_a_bounded_number_of_effects() -> None:
    assert Effects.none(1000, 8, torch.zeros(1)).moments.shape == (MOST_GROUPS, 8)
    shares = torch.rand(3, 1000, generator=torch.Generator().manual_seed(0))
    grouped = to_groups(shares, MOST_GROUPS)
    torch.testing.assert_close(grouped.sum(dim=1), shares.sum(dim=1))
    torch.testing.assert_close(grouped[:, 0], shares[:, :8].sum(dim=1))


def test_what_is_watched_is_a_moving_average() -> None:
    runs = torch.zeros(2)
    for _ in range(200):
        runs = watch(runs, torch.tensor(0.8), torch.tensor(0.1), torch.tensor(0.9))
    assert torch.allclose(runs, torch.tensor([0.8, 0.1]), atol=1e-4)
