"""The order of labels against a sum over all sequences of them, and on streams of each kind."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.arrays import as_tensor, at_hand
from realistic_tta.functional.label_order import STAYS, LabelOrder, read, read_in_graph

DECAY = 0.1 ** (1 / 1024)


def random_predictions(images: int, classes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(images, classes, generator=generator, dtype=torch.float64)
    return logits.softmax(dim=1)


def answers(labels: Tensor, classes: int, seed: int = 0, right: float = 0.7) -> Tensor:
    """Predictions of a network that gives the right label so often, and is less sure when not."""
    generator = torch.Generator().manual_seed(seed)
    other = torch.randint(classes, labels.shape, generator=generator)
    told = torch.where(torch.rand(labels.shape, generator=generator) < right, labels, other)
    sure = (
        0.4
        + 0.3 * torch.rand(len(labels), 1, generator=generator)
        + 0.25 * (told == labels)[:, None]
    )
    rest = (1 - sure) / (classes - 1)
    return torch.where(torch.nn.functional.one_hot(told, classes).bool(), sure, rest)


def follow(predictions: Tensor, size: int, *, ways: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What is answered batch by batch, (image,), and the chance of runs after each batch."""
    order = LabelOrder.none(predictions.shape[1], predictions)
    if ways is not None:
        order = order._replace(ways=ways.to(predictions))
    answered, chances = [], []
    for batch in predictions.split(size):
        added, order = read(order, batch, DECAY)
        answered.append((batch.log() if added is None else batch.log() + added).argmax(dim=1))
        chances.append(order.runs())
    return torch.cat(answered), torch.tensor(chances)


def only(stay: float) -> Tensor:
    """That stay is known, and nothing else is possible."""
    return torch.tensor([0.0, *(float(each == stay) for each in STAYS)])


def all_paths(predictions: Tensor, stay: float) -> Tensor:
    """Brute force: the chance of each label of each image, summed over all sequences of labels."""
    images, classes = predictions.shape
    belief = torch.zeros_like(predictions)
    for path in itertools.product(range(classes), repeat=images):
        chance = 1 / classes
        for image, label in enumerate(path):
            before = path[image - 1] if image else None
            if before is not None:
                chance *= (1 - stay) / classes + stay * (label == before)
            chance *= predictions[image, label].item()
        for image, label in enumerate(path):
            belief[image, label] += chance
    return belief / belief.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("stay", STAYS)
def test_an_image_is_believed_to_be_what_all_sequences_of_labels_make_it(stay: float) -> None:
    predictions = random_predictions(5, 3)
    order = LabelOrder.none(3, predictions)._replace(ways=only(stay).double())
    added, _ = read(order, predictions, DECAY)
    assert added is not None
    torch.testing.assert_close(predictions * added.exp(), all_paths(predictions, stay))


def test_images_before_the_batch_count_and_those_after_it_cannot() -> None:
    """The first two images alone, then a third: its belief is that of all three."""
    predictions = random_predictions(3, 3)
    order = LabelOrder.none(3, predictions)._replace(ways=only(0.8).double())
    _, order = read(order, predictions[:2], DECAY)
    order = order._replace(ways=only(0.8).double())  # the hazard has left a doubt
    added, _ = read(order, predictions[2:], DECAY)
    assert added is not None
    expected = all_paths(predictions, 0.8)[2:]
    torch.testing.assert_close(predictions[2:] * added.exp(), expected)


def test_likelihoods_tell_the_ways_apart_as_the_formula_by_hand_does() -> None:
    predictions = torch.tensor([[0.7, 0.3], [0.6, 0.4]], dtype=torch.float64)
    order = LabelOrder.none(2, predictions)
    _, after = read(order, predictions, DECAY)
    likelihood = [1.0]
    for stay in STAYS:
        even = stay * 0.5 / 0.5 + 1 - stay  # the first image: nothing came before it
        label = torch.tensor([0.7, 0.3], dtype=torch.float64)
        label = label / label.sum()
        foretold = stay * (label @ predictions[1]) / 0.5 + 1 - stay
        likelihood.append(even * foretold.item())
    found = order.ways * torch.tensor(likelihood, dtype=torch.float64)
    found = found / found.sum()
    expected = order.ways + 0.999**2 * (found - order.ways)
    torch.testing.assert_close(after.ways, expected)


@pytest.mark.parametrize("size", [1, 16, 64])
@pytest.mark.parametrize("classes", [10, 100])
def test_in_any_order_no_answer_is_another(size: int, classes: int) -> None:
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(classes, (960,), generator=generator)
        predictions = answers(labels, classes, seed)
        answered, chances = follow(predictions, size)
        assert (chances > 0).float().mean() < 0.01
        assert answered.equal(predictions.argmax(dim=1))


@pytest.mark.parametrize(("size", "left"), [(1, 0.9), (16, 0.5), (200, 0.3)])
@pytest.mark.parametrize("length", [10, 20, 100])
def test_in_runs_the_labels_around_an_image_correct_it(size: int, left: float, length: int) -> None:
    """Of the wrong answers no more than such a part is left, the fewer the more came at once."""
    labels = torch.arange(10).repeat_interleave(length).repeat(4)
    predictions = answers(labels, 10)
    wrong = (predictions.argmax(dim=1) != labels).float().mean()
    answered, chances = follow(predictions, size)
    assert chances[-1] > 0.99 * 0.999**size  # the hazard is in it
    assert (answered != labels).float().mean() < left * wrong


def test_runs_of_two_are_seen() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (400,), generator=generator).repeat_interleave(2)
    predictions = answers(labels, 10)
    answered, chances = follow(predictions, 16)
    assert chances[-1] > 0.99 * 0.999**16
    wrong = (predictions.argmax(dim=1) != labels).float().mean()
    assert (answered != labels).float().mean() < wrong


def test_where_runs_end_it_is_noticed() -> None:
    generator = torch.Generator().manual_seed(0)
    runs = torch.arange(10).repeat_interleave(20)
    predictions = answers(torch.cat((runs, torch.randint(10, (200,), generator=generator))), 10)
    _, chances = follow(predictions, 1)
    assert chances[190] > 0.99
    assert chances[230:].max() < 0.01


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_rare_classes_are_not_lost_to_one_that_is_most_of_what_there_is(share: float) -> None:
    """In any order; only its first images cannot be told from a run."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(1, 10, (2000,), generator=generator)
    labels[torch.rand(2000, generator=generator) < share] = 0
    predictions = answers(labels, 10)
    answered, chances = follow(predictions, 16)
    assert chances[40:].max() < 0.5
    rare = labels > 0
    lost = (answered[rare] != labels[rare]).float().mean()
    assert lost < (predictions.argmax(dim=1)[rare] != labels[rare]).float().mean() + 0.03


@given(st.integers(1, 9), st.integers(2, 6), st.integers(0, 99))
def test_beliefs_and_chances_are_chances(images: int, classes: int, seed: int) -> None:
    predictions = random_predictions(images, classes, seed)
    order = LabelOrder.none(classes, predictions)._replace(ways=torch.full((4,), 0.25).double())
    added, after = read(order, predictions, DECAY)
    assert added is not None
    one = torch.ones(images, dtype=torch.float64)
    torch.testing.assert_close((predictions * added.exp()).sum(dim=1), one)
    for each in (after.ways, after.usual, *after.belief):
        assert each.min() >= 0
        assert each.sum().item() == pytest.approx(1)


def test_a_prediction_of_no_chance_is_no_trouble() -> None:
    """Softmax of logits that are far apart is 0 in float32."""
    predictions = torch.eye(4).repeat_interleave(3, dim=0)
    answered, chances = follow(predictions, 12, ways=only(0.8))
    assert answered.equal(predictions.argmax(dim=1))
    assert torch.isfinite(chances).all()
    order = LabelOrder.none(4, predictions)._replace(ways=only(0.8))
    added, after = read(order, predictions, DECAY)
    assert added is not None
    assert torch.isfinite(added).all()
    assert all(torch.isfinite(each).all() for each in after)


@pytest.mark.parametrize("ways", [None, only(0.8)])
def test_a_graph_reads_the_same(ways: Tensor | None) -> None:
    predictions = random_predictions(6, 3).float()
    order = LabelOrder.none(3, predictions)
    order = order if ways is None else order._replace(ways=ways)
    expected, after = read(order, predictions, DECAY)
    found, also = read_in_graph(order, predictions, DECAY)
    torch.testing.assert_close(found, torch.zeros(6, 3) if expected is None else expected)
    torch.testing.assert_close(tuple(also), tuple(after))
    torch.library.opcheck(
        torch.ops.realistic_tta.read_labels.default, ([*order], predictions, DECAY)
    )


@pytest.mark.parametrize("ways", [None, only(0.8)])
def test_numpy_reads_the_same(ways: Tensor | None) -> None:
    predictions = random_predictions(6, 3)
    order = LabelOrder.none(3, predictions)
    order = order if ways is None else order._replace(ways=ways.double())
    expected, after = read(order, predictions, DECAY)
    found, also = read(LabelOrder(*map(at_hand, order)), at_hand(predictions), DECAY)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        torch.testing.assert_close(as_tensor(found), expected)
    for one, other in zip(also, after, strict=True):
        torch.testing.assert_close(as_tensor(one), other)


@pytest.mark.parametrize(("stay", "doubt"), [(0.5, 0.0), (0.8, 0.125), (0.95, 0.25)])
def test_the_longer_runs_are_the_more_a_new_class_may_be_a_change(
    stay: float, doubt: float
) -> None:
    order = LabelOrder.none(3, torch.zeros(1))
    assert order.doubt_of_changes() == 0
    assert order._replace(ways=only(stay)).doubt_of_changes() == doubt
    nearly_any = torch.tensor([0.995, 0.0, 0.0, 0.005])
    assert order._replace(ways=nearly_any).doubt_of_changes() == 0
