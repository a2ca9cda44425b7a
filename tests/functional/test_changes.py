from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from realistic_tta.functional.changes import (
    _BETWEEN,
    _FREEDOM,
    _HAZARD,
    _INDEPENDENT,
    RECENT,
    Changes,
    Seen,
    Sight,
    log_density,
    look,
)

FEATURES = 12
NOT_FORGOTTEN = torch.tensor(1.0)


def sight(values: Tensor, content: float = 1.0) -> Sight:
    """Of images with these signatures, (image, feature), whose parts differ by so much."""
    scatter = torch.eye(FEATURES) * content * len(values)
    return Sight(values.mean(dim=0), scatter, len(values), 4)


def course(levels: list[float], size: int = 1, apart: float = 0.7) -> tuple[list[Seen], Changes]:
    """Batches of images about one level after another, whose content has variance 1.

    apart: how far images of one level lie from it.
    """
    generator = torch.Generator().manual_seed(0)
    known, seen = Changes.none(FEATURES, torch.zeros(1)), []
    for level in levels:
        values = level + apart * torch.randn(size, FEATURES, generator=generator)
        found, known = look(known, sight(values), NOT_FORGOTTEN)
        seen.append(found)
    return seen, known


def test_in_a_domain_that_stays_everything_counts() -> None:
    seen, known = course([0.0] * 200)
    assert min(each.older.item() for each in seen) > 0.95
    assert known.usual[0].item() == pytest.approx(0.49, rel=0.1)


@pytest.mark.parametrize("size", [1, 16])
def test_after_a_change_only_what_came_since_counts(size: int) -> None:
    seen, _ = course([0.0] * 60 + [3.0] * 10, size)
    for since in range(1, 10):
        kept = seen[60 + since].recent
        assert kept[:since].min() > 0.9
        assert kept[since:].max() < 0.1
        assert seen[60 + since].older < 0.1


def test_one_odd_image_is_forgiven() -> None:
    """It is taken for a change at first, and what came before counts again afterwards."""
    seen, _ = course([0.0] * 60 + [3.0] + [0.0] * 10)
    assert seen[60].older < 0.5
    assert seen[63].older > 0.9


def test_with_the_first_batch_nothing_has_changed() -> None:
    seen, known = course([100.0])
    assert seen[0].recent.tolist() == [1.0] * RECENT
    assert seen[0].older == 1
    assert known.images[0] == 1


def test_a_change_that_has_left_the_last_batches_is_not_forgotten() -> None:
    """What is older than they are is then of the new domain alone."""
    seen, known = course([0.0] * 60 + [3.0] * (RECENT + 20))
    assert min(each.joined.item() for each in seen[:60]) > 0.9
    assert min(each.joined.item() for each in seen[60 : 60 + RECENT + 1]) < 0.1
    assert seen[-1].older > 0.9
    assert known.older.mean().item() == pytest.approx(3.0, abs=0.3)


def test_where_all_images_are_unlike_each_other_that_is_usual() -> None:
    """However much more than their parts: no stream loses its memory for ever."""
    seen, _ = course([0.0] * 400, apart=30.0)
    assert seen[10].older < 0.1
    assert min(each.older.item() for each in seen[300:]) > 0.9


def test_a_stuck_camera_does_not_make_all_other_images_new_for_ever() -> None:
    _, known = course([0.0] * 3000, apart=0.0)
    assert all(torch.isfinite(each).all() for each in known)
    generator = torch.Generator().manual_seed(0)
    kept = []
    for _ in range(200):
        values = 0.7 * torch.randn(1, FEATURES, generator=generator)
        seen, known = look(known, sight(values), NOT_FORGOTTEN)
        kept.append(seen.older.item())
    assert np.mean(kept[100:]) > 0.95


def test_a_doubt_keeps_what_came_before() -> None:
    seen = Seen(torch.tensor([0.5, 0.2]), torch.tensor(0.0), torch.tensor(0.5))
    for found, whole in zip(
        seen.doubted(torch.tensor(1.0)), Seen.nothing(2, torch.zeros(1)), strict=True
    ):
        assert torch.equal(found, whole)
    half = seen.doubted(torch.tensor(0.5))
    torch.testing.assert_close(half.recent, torch.tensor([0.75, 0.6]))
    torch.testing.assert_close(half.older, torch.tensor(0.5))


@pytest.mark.parametrize("distance", [0.1, 1.0, 7.0])
def test_the_density_is_students(distance: float) -> None:
    """Against SciPy's, in as many dimensions, at points of this squared distance a dimension."""
    dimensions, variance = int(_INDEPENDENT), 2.5
    for_scipy = stats.multivariate_t(
        np.zeros(dimensions), variance * np.eye(dimensions), df=_FREEDOM
    )
    point = np.full(dimensions, math.sqrt(distance))
    expected = for_scipy.logpdf(point) - for_scipy.logpdf(np.zeros(dimensions))
    at = (torch.tensor(each, dtype=torch.float64) for each in (distance, 0.0))
    found, centre = (log_density(each, torch.tensor(variance, dtype=torch.float64)) for each in at)
    assert (found - centre).item() == pytest.approx(expected, rel=1e-9)


def test_the_chances_are_those_of_bayes_by_hand() -> None:
    """After three batches, from the densities of each beginning's own mean."""
    generator = torch.Generator().manual_seed(3)
    batches = [torch.randn(4, FEATURES, generator=generator) for _ in range(3)]
    known = Changes.none(FEATURES, torch.zeros(1))
    for batch in batches[:2]:
        _, known = look(known, sight(batch), NOT_FORGOTTEN)
    before = known
    seen, _ = look(before, sight(batches[2]), NOT_FORGOTTEN)

    ridge = 1.0 + 0.01 + 1e-4  # the content's variance, a hundredth of it, and what is least
    usual = before.usual[0]
    hazard = (1 - (1 - _HAZARD) ** 4) * 8 / 38
    means = [batch.mean(dim=0) for batch in batches]

    def density(mean: Tensor, images: int) -> float:
        apart = (means[2] - mean).square().mean() / ridge
        return math.exp(log_density(apart, usual * (1 / 4 + 1 / images)).item())

    began_with_second = math.exp(before.beginnings[0].item())
    began_before = math.exp(before.beginnings[-1].item())
    between = usual * (1 / 4 + _BETWEEN)
    now = hazard * math.exp(log_density(between, between).item())
    second = (1 - hazard) * began_with_second * density(means[1], 4)
    first = (1 - hazard) * began_before * density((means[0] + means[1]) / 2, 8)
    total = now + second + first
    assert seen.older.item() == pytest.approx(first / total, rel=1e-3)
    assert seen.recent[0].item() == pytest.approx((first + second) / total, rel=1e-3)
