"""Whether the mirror shows the same, against NumPy and by its promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.statistics.arrays import at_hand
from realistic_tta.statistics.likeness import Likeness, compare, share_of_mirror

CLASSES = 4


def answers(count: int, seed: int, sharpness: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(count, CLASSES, generator=generator)).double().softmax(dim=1)


def none() -> Likeness:
    return Likeness.none(CLASSES, torch.zeros(1, dtype=torch.float64))


def swapped(one_hot: Tensor) -> Tensor:
    """The first two classes are each other in the mirror."""
    return one_hot[:, [1, 0, 2, 3]]


def seen(labels: Tensor, mirror: Tensor | None = None, sure: float = 8.0) -> Likeness:
    """Of images that are taken for these labels, and in the mirror for those."""
    logits = sure * torch.nn.functional.one_hot(labels, CLASSES).double()
    other = swapped(logits) if mirror is None else mirror
    return compare(none(), logits.softmax(dim=1), other.softmax(dim=1), decay=1.0)


@given(st.integers(1, 6), st.integers(0, 1000), st.floats(0.5, 1.0))
def test_it_is_the_weighted_cosine_by_class(count: int, seed: int, decay: float) -> None:
    before = compare(none(), answers(3, seed + 1), answers(3, seed + 2), 1.0)
    predictions, mirrored = answers(count, seed), answers(count, seed + 3)
    found = compare(before, predictions, mirrored, decay)
    sums = decay**count * before.sums.numpy()
    images = decay**count * before.images.numpy()
    for one, other in zip(predictions.numpy(), mirrored.numpy(), strict=True):
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        for label in range(CLASSES):
            sums[label] += one[label] * cosine
            images[label] += one[label]
    np.testing.assert_allclose(found.sums.numpy(), sums, rtol=1e-12)
    np.testing.assert_allclose(found.images.numpy(), images, rtol=1e-12)


@given(st.integers(0, 1000))
def test_numpys_arrays_and_tensors_give_the_same(seed: int) -> None:
    """And batches make no difference where nothing is forgotten."""
    predictions, mirrored = answers(6, seed), answers(6, seed + 1)
    whole = compare(none(), predictions, mirrored, 1.0)
    known = Likeness(*map(at_hand, none()))
    for one, other in zip(predictions.split(2), mirrored.split(2), strict=True):
        known = compare(known, at_hand(one), at_hand(other), 1.0)
    np.testing.assert_allclose(known.sums, whole.sums.numpy(), rtol=1e-12)
    share = share_of_mirror(known, at_hand(predictions))
    np.testing.assert_allclose(share, share_of_mirror(whole, predictions).numpy(), rtol=1e-9)


def test_nothing_counts_before_it_has_been_seen_to_agree() -> None:
    assert share_of_mirror(none(), answers(5, 0)).eq(0).all()


@given(st.integers(0, 1000), st.integers(0, 40))
def test_the_image_itself_always_has_the_last_word(seed: int, count: int) -> None:
    """Where both are equally sure of different things, the answer is the image's."""
    known = none()
    if count:
        known = compare(known, answers(count, seed), answers(count, seed), 1.0)
    share = share_of_mirror(known, answers(5, seed + 1))
    assert share.ge(0).all()
    assert share.lt(0.45).all()


def test_classes_that_are_each_other_in_the_mirror_are_answered_without_it() -> None:
    """Turn left and turn right, among signs that are the same from both sides."""
    labels = torch.cat((torch.tensor([0, 1]).repeat(4), torch.tensor([2, 3]).repeat(40)))
    known = seen(labels)
    share = share_of_mirror(known, torch.eye(CLASSES).double()).flatten()
    assert share[:2].eq(0).all()
    assert share[2:].tolist() == pytest.approx([0.4, 0.4])


def test_where_most_classes_are_others_in_the_mirror_none_is_asked() -> None:
    """A digit in the mirror is taken for some digit or other, and 8 is no more than that."""
    known = seen(torch.cat((torch.tensor([0, 1]).repeat(30), torch.tensor([2]).repeat(20))))
    assert share_of_mirror(known, torch.eye(CLASSES).double()).eq(0).all()
    assert known.is_hopeless()


def test_it_is_not_hopeless_before_enough_has_been_seen_or_where_some_agree() -> None:
    assert not none().is_hopeless()
    assert not seen(torch.tensor([0, 1] * 10)).is_hopeless()
    assert not seen(torch.tensor([2, 3] * 30)).is_hopeless()
