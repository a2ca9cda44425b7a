"""smooth_labels=True: the posterior of a hidden Markov model of the labels."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from subjects import convolutional, images, on_cpu, stream
from torch import Tensor, nn

from realistic_tta import ModelError, adapt
from realistic_tta.functional.label_hmm import P_STAY, LabelHMM, smooth


def random_predictions(count: int, classes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    return logits.softmax(dim=1)


def noisy(labels: Tensor, classes: int, seed: int = 0, correct: float = 0.7) -> Tensor:
    """Predictions of a model that is right so often, and less confident when it is wrong."""
    generator = torch.Generator().manual_seed(seed)
    other = torch.randint(classes, labels.shape, generator=generator)
    right = torch.rand(labels.shape, generator=generator) < correct
    chosen = torch.where(right, labels, other)
    confidence = 0.4 + 0.3 * torch.rand(len(labels), 1, generator=generator)
    confidence = confidence + 0.25 * (chosen == labels)[:, None]
    rest = (1 - confidence) / (classes - 1)
    return torch.where(torch.nn.functional.one_hot(chosen, classes).bool(), confidence, rest)


def start(classes: int, p_stay: float | None = None) -> LabelHMM:
    """Before the first image; with one p_stay, the only one that is possible."""
    hmm = LabelHMM.start(classes, torch.zeros((), dtype=torch.float64))
    if p_stay is None:
        return hmm
    return hmm._replace(p_model=torch.tensor([float(each == p_stay) for each in P_STAY]).double())


def enumerate_paths(predictions: Tensor, p_stay: float, before: Tensor) -> tuple[Tensor, float]:
    """Brute force over all label sequences: posterior per image, and likelihood of the stream.

    before: the distribution of the label before the first image. Class shares are equal, so the
    likelihood of an image is its prediction times the number of classes.
    """
    count, classes = predictions.shape
    posterior, total = torch.zeros_like(predictions), 0.0
    for path in itertools.product(range(classes), repeat=count):
        p = p_stay * before[path[0]].item() + (1 - p_stay) / classes
        for image, label in enumerate(path):
            if image:
                p *= p_stay * (label == path[image - 1]) + (1 - p_stay) / classes
            p *= predictions[image, label].item() * classes
        for image, label in enumerate(path):
            posterior[image, label] += p
        total += p
    return posterior / total, total


EQUAL = torch.full((3,), 1 / 3, dtype=torch.float64)


@pytest.mark.parametrize("p_stay", P_STAY)
def test_each_p_stay_gives_the_posterior_over_all_label_sequences(p_stay: float) -> None:
    predictions = random_predictions(5, 3)
    found, after = smooth(start(3, p_stay), predictions)
    expected, _ = enumerate_paths(predictions, p_stay, EQUAL)
    torch.testing.assert_close(found, expected)
    place = P_STAY.index(p_stay)
    torch.testing.assert_close(after.posterior[place], expected[-1])


def test_their_mixture_is_weighted_by_the_likelihood_of_the_stream() -> None:
    predictions = random_predictions(5, 3, seed=1)
    prior = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    found, after = smooth(start(3)._replace(p_model=prior), predictions)
    results = [enumerate_paths(predictions, p_stay, EQUAL) for p_stay in P_STAY]
    joint = prior * torch.tensor([total for _, total in results], dtype=torch.float64)
    weights = joint / joint.sum()
    expected = sum(weight * each for weight, (each, _) in zip(weights, results, strict=True))
    torch.testing.assert_close(found, expected)
    kept = 0.999**5
    fresh = start(3).p_model
    torch.testing.assert_close(after.p_model, kept * weights + (1 - kept) * fresh)


def test_images_before_the_batch_count() -> None:
    """Three images at once, or two and then one: the last posterior is that of all three."""
    predictions = random_predictions(3, 3)
    expected, _ = enumerate_paths(predictions, 0.8, EQUAL)
    _, after = smooth(start(3, 0.8), predictions[:2])
    equal_shares = after._replace(p_model=start(3, 0.8).p_model, counts=start(3).counts)
    found, _ = smooth(equal_shares, predictions[2:])
    torch.testing.assert_close(found, expected[2:])


def follow(predictions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Smoothed predictions, batch by batch, and the probability of runs after each batch."""
    hmm, found, runs = LabelHMM.start(predictions.shape[1], predictions), [], []
    for batch in predictions.split(size):
        smoothed, hmm = smooth(hmm, batch)
        found.append(smoothed)
        runs.append(1 - hmm.p_model[0])
    return torch.cat(found), torch.stack(runs)


@pytest.mark.parametrize("size", [1, 16, 64])
@pytest.mark.parametrize("classes", [10, 100])
def test_in_random_order_predictions_are_left_nearly_alone(size: int, classes: int) -> None:
    labels = torch.randint(classes, (640,), generator=torch.Generator().manual_seed(3))
    predictions = noisy(labels, classes)
    found, runs = follow(predictions, size)
    assert runs.max() < 0.05
    assert (found - predictions).abs().mean() < 0.005
    assert (found.argmax(dim=1) != predictions.argmax(dim=1)).float().mean() < 0.01


@pytest.mark.parametrize(("size", "left"), [(1, 0.9), (16, 0.5), (200, 0.3)])
@pytest.mark.parametrize("length", [10, 20, 100])
def test_in_runs_neighbors_correct_an_image(size: int, left: float, length: int) -> None:
    """At most this part of the errors is left, the less the more images come at once."""
    labels = torch.arange(10).repeat_interleave(length).repeat(4)
    predictions = noisy(labels, 10)
    wrong = (predictions.argmax(dim=1) != labels).float().mean()
    found, runs = follow(predictions, size)
    assert runs[-1] > 0.99 * 0.999**size
    assert (found.argmax(dim=1) != labels).float().mean() < left * wrong


def test_the_end_of_runs_is_noticed() -> None:
    generator = torch.Generator().manual_seed(0)
    runs = torch.arange(10).repeat_interleave(20)
    labels = torch.cat((runs, torch.randint(10, (200,), generator=generator)))
    _, found = follow(noisy(labels, 10), 1)
    assert found[190] > 0.99
    assert found[-1] < 0.1


@given(st.integers(1, 9), st.integers(2, 6), st.integers(0, 99))
def test_probabilities_sum_to_one(count: int, classes: int, seed: int) -> None:
    found, after = smooth(start(classes), random_predictions(count, classes, seed))
    for each in (found, after.p_model, after.posterior):
        assert each.min() >= 0
        torch.testing.assert_close(each.sum(dim=-1), torch.ones_like(each.sum(dim=-1)))
    assert after.counts.min() > 0


def test_a_prediction_of_zero_stays_finite() -> None:
    certain = torch.eye(3)[[0, 1, 1, 2, 0]]
    found, after = smooth(LabelHMM.start(3, certain), certain)
    assert torch.isfinite(found).all()
    assert all(torch.isfinite(each).all() for each in after)


class FirstPixels(nn.Module):
    """Reads its logits from the first pixels of an image, past a BatchNorm that it keeps busy."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.classes = classes
        with on_cpu():
            self.norm = nn.BatchNorm2d(1)

    def forward(self, batch: Tensor) -> Tensor:
        logits: Tensor = batch.flatten(1)[:, : self.classes] + 0 * self.norm(batch).mean()
        return logits


def shown(predictions: Tensor) -> Tensor:
    """Images whose logits are these predictions."""
    batch = torch.zeros(len(predictions), 1, 4, 4)
    batch.flatten(1)[:, : predictions.shape[1]] = predictions.log()
    return batch


def error(adapted: nn.Module, predictions: Tensor, labels: Tensor, size: int = 16) -> float:
    outputs = torch.cat([adapted(batch) for batch in shown(predictions).split(size)])
    return (outputs.argmax(dim=1) != labels).float().mean().item()


def sorted_labels() -> tuple[Tensor, Tensor, Tensor]:
    """A stream sorted by label: predictions, labels, and a random order of it."""
    labels = torch.arange(10).repeat_interleave(40)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(1))
    return noisy(labels, 10), labels, order


def test_a_sorted_stream_is_predicted_better_and_a_shuffled_one_as_before() -> None:
    predictions, labels, order = sorted_labels()
    plain = error(adapt(FirstPixels(), "tbn"), predictions, labels)
    smoothed = error(adapt(FirstPixels(), "tbn", smooth_labels=True), predictions, labels)
    mixed = adapt(FirstPixels(), "tbn", smooth_labels=True)
    shuffled = error(mixed, predictions[order], labels[order])
    assert plain > 0.2
    assert smoothed < 0.5 * plain
    assert shuffled == pytest.approx(plain, abs=0.01)


def test_without_it_the_order_of_labels_is_not_used() -> None:
    """The default gains nothing from a sorted stream: each image is predicted on its own."""
    predictions, labels, order = sorted_labels()
    in_order = error(adapt(FirstPixels()), predictions, labels)
    shuffled = error(adapt(FirstPixels()), predictions[order], labels[order])
    assert in_order == shuffled > 0.2
    adapted, backwards = adapt(convolutional()), adapt(convolutional())
    batch = images(24)
    torch.testing.assert_close(adapted(batch), backwards(batch.flip(0)).flip(0))


def test_outputs_are_log_probabilities_in_the_models_type() -> None:
    adapted = adapt(convolutional().bfloat16(), "tema", smooth_labels=True)
    outputs = adapted(images(4).bfloat16())
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs.float().exp().sum(dim=1), torch.ones(4), atol=0.02, rtol=0)


@pytest.mark.parametrize("method", ["tema", "tent"])
def test_the_method_inside_adapts_as_without(method: str) -> None:
    adapted, plain = (
        adapt(convolutional(), method, smooth_labels=True),
        adapt(convolutional(), method),
    )
    for batch in stream([4, 9]):
        adapted(batch)
        plain(batch)
    state: dict[str, Any] = plain._innermost.state_dict()
    assert all(torch.equal(state[k], v) for k, v in adapted._innermost.state_dict().items())


def test_a_model_without_logits_is_refused_and_nothing_changes() -> None:
    with on_cpu():
        adapted = adapt(nn.Sequential(nn.BatchNorm2d(3)), "tbn", smooth_labels=True)
    with pytest.raises(ModelError, match="expected logits"):
        adapted(images(2))
    assert adapted.health().batches == 0
