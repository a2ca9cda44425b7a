"""Whether the mirror shows the same, against NumPy and by its promises."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.arrays import at_hand
from realistic_tta.functional.likeness import Likeness, compare, second_look

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
    found, expected = (second_look(each, *looks(seed)) for each in (known, whole))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def looks(seed: int, count: int = 5) -> tuple[Tensor, Tensor]:
    """Logits of some images, and of their mirror images."""
    return answers(count, seed).log() + 1.5, answers(count, seed + 1).log() - 0.5


@given(st.integers(0, 1000))
def test_a_second_look_is_the_mixture_of_believed_classes_written_out(seed: int) -> None:
    """By hand, image by image, with beliefs between 0 and 1."""
    images = torch.tensor([200.0, 20.0, 20.0, 5.0]).double()
    known = Likeness(torch.tensor([0.98, 0.72, 0.66, 0.1]) * images, images)
    belief = known.belief().numpy()
    assert belief[0] == 1 > belief[1] > belief[2] > belief[3] == 0
    logits, mirrored = looks(seed)
    found = second_look(known, logits, mirrored).softmax(dim=1).numpy()
    for one, other, answer in zip(logits.numpy(), mirrored.numpy(), found, strict=True):
        own, seen_there = (np.exp(each) / np.exp(each).sum() for each in (one, other))
        mixed = own ** (1 - 0.4 * belief) * seen_there ** (0.4 * belief)
        mixed *= ((belief * own).sum() / (belief * mixed).sum()) ** belief
        np.testing.assert_allclose(answer, mixed / mixed.sum(), rtol=1e-6)


def test_nothing_counts_before_it_has_been_seen_to_agree() -> None:
    logits, mirrored = looks(0)
    assert torch.equal(second_look(none(), logits, mirrored), logits)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_the_image_itself_always_has_the_last_word(seed: int, count: int) -> None:
    """Where both are equally sure of different things, the answer is the image's."""
    known = compare(none(), answers(count, seed), answers(count, seed), 1.0)
    sure = 9.0 * torch.eye(CLASSES).double()
    found = second_look(known, sure, sure.roll(1, 0))
    assert found.argmax(dim=1).tolist() == list(range(CLASSES))


def among_others() -> Likeness:
    """Turn left and turn right, among signs that are the same from both sides."""
    return seen(torch.cat((torch.tensor([0, 1]).repeat(4), torch.tensor([2, 3]).repeat(40))))


def test_what_classes_have_that_are_others_in_the_mirror_it_neither_gives_nor_takes() -> None:
    """A sign that is nearly as much like another one is still turn left, not turn right."""
    left = torch.tensor([[0.5, 0.05, 0.25, 0.2]]).double().log()
    right = torch.tensor([[0.0005, 0.7, 0.04, 0.2595]]).double().log()
    found = second_look(among_others(), left, right).softmax(dim=1)
    torch.testing.assert_close(found[0, :2], left.exp()[0, :2])
    assert found[0, 3] > found[0, 2]  # but of the others the mirror tells which


def test_where_most_classes_are_others_in_the_mirror_none_is_asked() -> None:
    """A digit in the mirror is taken for some digit or other, and 8 is no more than that."""
    known = seen(torch.cat((torch.tensor([0, 1]).repeat(30), torch.tensor([2]).repeat(20))))
    logits, mirrored = looks(0)
    assert torch.equal(second_look(known, logits, mirrored), logits)
    assert known.is_hopeless()


def test_it_is_not_hopeless_before_enough_has_been_seen_or_where_some_agree() -> None:
    assert not none().is_hopeless()
    assert not seen(torch.tensor([0, 1] * 10)).is_hopeless()
    assert not seen(torch.tensor([2, 3] * 30)).is_hopeless()
