"""smooth_labels=True: the posterior of a hidden Markov model of the labels."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from subjects import convolutional, images, on_cpu, stream
from torch import Tensor, nn

from realistic_tta import ModelError, adapt
from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.functional import label_hmm
from realistic_tta.functional.label_hmm import CONFIDENCE, P_STAY, LabelHMM, smooth
from realistic_tta.models.checkpoints import load_model


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


EQUAL = torch.full((3,), 1 / 3, dtype=torch.float64)
HYPOTHESES = list(itertools.product(range(len(CONFIDENCE)), range(len(P_STAY))))
RUNS = [each for each in HYPOTHESES if P_STAY[each[1]] > 0]


def start(classes: int, only: tuple[int, int] | None = None) -> LabelHMM:
    """Before the first image, with class shares that stay equal; one hypothesis, or the prior."""
    hmm = LabelHMM.start(classes, torch.zeros((), dtype=torch.float64))
    hmm = hmm._replace(counts=torch.full_like(hmm.counts, 1e12))
    if only is None:
        return hmm
    certain = torch.zeros_like(hmm.p_model)
    certain[only] = 1
    return hmm._replace(p_model=certain)


def random_logits(count: int, classes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)


def temperature(logits: Tensor, confidence: float) -> float:
    """The temperature at which the mean gap of the logits gives this confidence, by hand."""
    gaps = [max(each) - sum(each) / len(each) for each in logits.tolist()]
    gap: float = sum(gaps) / len(gaps)
    return gap / math.log(confidence * (logits.shape[1] - 1) / (1 - confidence))


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


@pytest.fixture
def no_hazard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_hmm, "HAZARD", 0.0)


@pytest.mark.usefixtures("no_hazard")
@pytest.mark.parametrize("only", RUNS)
def test_each_hypothesis_gives_the_posterior_over_all_label_sequences(
    only: tuple[int, int],
) -> None:
    logits = random_logits(5, 3)
    found, after = smooth(start(3, only), logits)
    scale = temperature(logits, CONFIDENCE[only[0]])
    expected, _ = enumerate_paths((logits / scale).softmax(dim=1), P_STAY[only[1]], EQUAL)
    torch.testing.assert_close(after.posterior[only], expected[-1])
    torch.testing.assert_close((found / scale).softmax(dim=1), expected)


@pytest.mark.usefixtures("no_hazard")
def test_their_weights_are_the_likelihoods_of_the_stream() -> None:
    """Relative to constant shares, whose likelihood is 1 as images are compared with the shares."""
    logits = random_logits(5, 3, seed=1)
    _, after = smooth(start(3), logits)
    prior = start(3).p_model
    for only in RUNS:
        scale = temperature(logits, CONFIDENCE[only[0]])
        predictions = (logits / scale).softmax(dim=1)
        _, total = enumerate_paths(predictions, P_STAY[only[1]], EQUAL)
        ratio = (after.p_model[only] / prior[only]) / (after.p_model[0, 0] / prior[0, 0])
        assert ratio.item() == pytest.approx(total)


@pytest.mark.usefixtures("no_hazard")
def test_images_before_the_batch_count() -> None:
    """Three images at once, or two and then one: the last posterior is that of all three."""
    (first,) = random_logits(1, 3)
    logits = torch.stack((first, first.flip(0), first.roll(1)))  # all with one gap
    scale = temperature(logits, CONFIDENCE[1])
    expected, _ = enumerate_paths((logits / scale).softmax(dim=1), P_STAY[4], EQUAL)
    _, after = smooth(start(3, (1, 4)), logits[:2])
    found, _ = smooth(after, logits[2:])
    torch.testing.assert_close((found / scale).softmax(dim=1), expected[2:])


def follow(logits: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Smoothed logits, batch by batch, and the probability of runs after each batch."""
    hmm, found, runs = LabelHMM.start(logits.shape[1], logits), [], []
    for batch in logits.split(size):
        smoothed, hmm = smooth(hmm, batch)
        found.append(smoothed)
        runs.append(1 - hmm.p_model[:, :2].sum())
    return torch.cat(found), torch.stack(runs)


@pytest.mark.parametrize("size", [1, 16, 64])
@pytest.mark.parametrize("scale", [1 / 3, 3.0])
def test_logits_times_three_give_the_same_labels_and_three_times_the_logits(
    size: int, scale: float
) -> None:
    logits = noisy(torch.arange(10).repeat_interleave(20), 10).log().double()
    found, _ = follow(logits, size)
    scaled, _ = follow(scale * logits, size)
    torch.testing.assert_close(scaled, (scale * found).log_softmax(dim=1))


@pytest.mark.parametrize("size", [1, 16, 64])
@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("scale", [1 / 3, 1.0, 3.0])
def test_in_random_order_predictions_are_left_nearly_alone(
    size: int, classes: int, scale: float
) -> None:
    labels = torch.randint(classes, (640,), generator=torch.Generator().manual_seed(3))
    logits = scale * noisy(labels, classes).log()
    found, runs = follow(logits, size)
    assert runs.max() < 0.05
    assert (found.argmax(dim=1) != logits.argmax(dim=1)).float().mean() <= 0.003


@pytest.mark.parametrize("size", [1, 50])
def test_a_model_that_mostly_says_one_class_is_no_run(size: int) -> None:
    """In random order half the predictions are one class, and every 150 images it is another."""
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randint(10, (900,), generator=generator)
    usual = torch.arange(6).repeat_interleave(150)
    predicted = torch.where(torch.rand(900, generator=generator) < 0.5, usual, predicted)
    logits = noisy(predicted, 10, correct=1.0).log()
    found, _ = follow(logits, size)
    assert torch.equal(found.argmax(dim=1), logits.argmax(dim=1))


@pytest.mark.parametrize("scale", [1 / 3, 1.0, 3.0])
@pytest.mark.parametrize(("size", "left"), [(1, 0.7), (16, 0.5), (200, 0.3)])
@pytest.mark.parametrize("length", [10, 20, 100])
def test_in_runs_neighbors_correct_an_image(
    size: int, left: float, length: int, scale: float
) -> None:
    """At most this part of the errors is left, the less the more images come at once."""
    labels = torch.arange(10).repeat_interleave(length).repeat(4)
    logits = scale * noisy(labels, 10).log()
    wrong = (logits.argmax(dim=1) != labels).float().mean()
    found, runs = follow(logits, size)
    assert runs[-1] > 0.99
    assert (found.argmax(dim=1) != labels).float().mean() < left * wrong


def test_the_end_of_runs_is_noticed() -> None:
    generator = torch.Generator().manual_seed(0)
    runs = torch.arange(10).repeat_interleave(20)
    labels = torch.cat((runs, torch.randint(10, (200,), generator=generator)))
    _, found = follow(noisy(labels, 10).log(), 1)
    assert found[190] > 0.99
    assert found[-1] < 0.1


@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 99))
def test_probabilities_sum_to_one(count: int, classes: int, seed: int) -> None:
    logits = random_logits(count, classes, seed)
    found, after = smooth(LabelHMM.start(classes, logits), logits)
    recent, posterior = after.recent.sum(dim=2), after.posterior.sum(dim=2)
    for sums in (found.exp().sum(dim=1), after.p_model.sum(), recent, posterior):
        torch.testing.assert_close(sums, torch.ones_like(sums))
    assert all(each.min() >= 0 for each in after)


@pytest.mark.parametrize("factor", [0.0, 1e-20, 1e4, 1e20])
def test_extreme_logits_stay_finite(factor: float) -> None:
    """Among them logits that are all equal, and classes that are never predicted for long."""
    certain = factor * torch.eye(3)[[0] * 40 + [1] * 40 + [2] + [0] * 2000 + [2, 1]]
    for size in (1, 200):
        found, runs = follow(certain, size)
        assert torch.isfinite(found).all()
        assert torch.isfinite(runs).all()


def test_a_class_not_seen_for_long_stays_finite_when_it_is_certain() -> None:
    """Its recent share has become zero, as have all others' in the prediction."""
    hmm = LabelHMM.start(3, torch.zeros(1))
    alone = torch.tensor([1.0, 0.0, 0.0]).expand_as(hmm.recent)
    hmm = hmm._replace(gap=torch.ones(1), images=torch.tensor([1000.0]), recent=alone)
    found, after = smooth(hmm, torch.tensor([[0.0, 0.0, 1000.0]]))
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


class Scaled(nn.Module):
    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, batch: Tensor) -> Tensor:
        logits: Tensor = self.model(batch)
        return self.factor * logits


@pytest.mark.parametrize("size", [1, 16, 200])
def test_the_embedded_model_gains_on_sorted_images_at_each_scale_and_else_loses_nothing(
    size: int,
) -> None:
    bundled = load_bundled_images()
    pixels = torch.from_numpy(bundled.images[:200]).permute(0, 3, 1, 2).float() / 255
    generator = torch.Generator().manual_seed(0)
    pixels = (pixels + 0.04 * torch.randn(pixels.shape, generator=generator)).clamp(0, 1)
    labels = torch.from_numpy(bundled.labels[:200])

    def errors(order: Tensor, factor: float, *, smooth_labels: bool) -> float:
        model = Scaled(load_model("cifar10"), factor)
        adapted = adapt(model, "source", smooth_labels=smooth_labels)
        found = torch.cat([adapted(pixels[part]).argmax(dim=1) for part in order.split(size)])
        return (found != labels[order]).float().mean().item()

    in_order, mixed = labels.argsort(stable=True), torch.randperm(200, generator=generator)
    plain = errors(mixed, 1.0, smooth_labels=False)
    assert plain > 0.2
    for factor in (1 / 3, 1.0, 3.0):
        assert errors(mixed, factor, smooth_labels=True) <= plain + 0.003
        assert errors(in_order, factor, smooth_labels=True) < 0.6 * plain


def test_a_state_resumes_in_the_middle_of_a_run() -> None:
    """Its size follows from the number of classes, which a new instance does not know yet."""
    predictions, _, _ = sorted_labels()
    first, second = shown(predictions).split([150, 250])
    adapted = adapt(FirstPixels(), "tbn", smooth_labels=True)
    adapted(first)
    again = adapt(FirstPixels(), "tbn", smooth_labels=True)
    again.load_state_dict(adapted.state_dict())
    fresh = adapt(FirstPixels(), "tbn", smooth_labels=True)(second[:8])
    expected = adapted(second[:8])
    assert torch.equal(again(second[:8]), expected)
    assert not torch.equal(fresh, expected)
