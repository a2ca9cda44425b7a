from __future__ import annotations

import math

import pytest
import torch
from methods._training.plain_training import eta, sure
from methods.method_state import method_state
from subjects import convolutional, images, same, stream

from realistic_tta import SGD, ModelError, OptionError, adapt
from realistic_tta.methods.eta import Eta, follow, not_redundant, weighted
from realistic_tta.methods.registry import preset_options

P = torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]])


def test_redundant_is_what_points_where_the_running_prediction_does() -> None:
    running = torch.tensor([1.0, 0.0, 0.0])
    cosines = [0.9 / math.hypot(0.9, 0.1), 0.1 / math.hypot(0.9, 0.1), 0.0]
    for margin in (0.05, 0.4, 1.1):
        expected = [cosine < margin for cosine in cosines]
        assert not_redundant(P, running, margin).tolist() == expected


def test_nothing_is_redundant_before_there_is_a_running_prediction() -> None:
    assert not_redundant(P, torch.zeros(3), margin=0.05).all()


def test_the_weight_grows_with_certainty_and_is_a_constant_to_the_gradient() -> None:
    entropies = torch.tensor([0.0, 0.2, 0.5], requires_grad=True)
    losses = weighted(entropies, 0.5)
    expected = torch.tensor([0.0, 0.2 * math.exp(0.3), 0.5])
    torch.testing.assert_close(losses.detach(), expected)
    (gradient,) = torch.autograd.grad(losses.sum(), entropies)
    torch.testing.assert_close(gradient, torch.tensor([math.exp(0.5), math.exp(0.3), 1.0]))


def test_the_running_prediction_starts_at_the_mean_and_then_follows() -> None:
    first = follow(torch.zeros(3), P[:2], decay=0.9)
    torch.testing.assert_close(first, torch.tensor([0.5, 0.5, 0.0]))
    torch.testing.assert_close(follow(first, P[2:], 0.9), torch.tensor([0.45, 0.45, 0.1]))


@pytest.mark.parametrize("margin", [0.4, 0.99, 1.1])
def test_a_stream_is_predicted_as_by_a_plain_torch_program(margin: float) -> None:
    batches = stream([32, 8, 1, 16, 40, 16])
    expected, counts = eta(sure(convolutional()), batches, margin)
    assert 0 < sum(counts) < sum(map(len, batches))
    adapted = adapt(sure(convolutional()), "eta", margin=margin)
    for batch, logits in zip(batches, expected, strict=True):
        torch.testing.assert_close(adapted(batch), logits, atol=2e-4, rtol=1e-4)


def test_without_a_reliable_image_there_is_no_step() -> None:
    """Only the statistics for freeze, and the count of batches, are new."""
    adapted = adapt(sure(convolutional()), "eta", margin=2.0)
    adapted(images(32))
    before = method_state(adapted)
    assert before["updates"] == 1
    strict = adapt(sure(convolutional()), "eta", entropy_threshold=0.0)
    strict.load_state_dict(adapted.state_dict())
    strict(images(8, seed=4))
    after = method_state(strict)
    changed = {"batches", "target_mean", "target_variance"}
    assert int(after["batches"]) == 2
    assert same(*({k: v for k, v in s.items() if k not in changed} for s in (before, after)))


def test_logits_of_another_number_are_refused() -> None:
    adapted = adapt(convolutional(classes=5), "eta", classes=7)
    with pytest.raises(ModelError, match=r"returned 5 logits per image; expected 7.*classes=5"):
        adapted(images(4))


def test_presets_differ_in_margin_and_optimizer() -> None:
    presets = [
        Eta(**preset_options("eta", name)) for name in ("cifar10_c", "cifar100_c", "imagenet_c")
    ]
    assert [preset.margin for preset in presets] == [0.4, 0.1, 0.05]
    assert [preset.optimizer.lr for preset in presets] == [1e-3, 1e-3, 2.5e-4]


def test_a_hyperparameter_beside_a_preset_takes_precedence() -> None:
    batches = stream([32, 8, 16])
    model = sure(convolutional())
    preset = adapt(model, "eta", preset="imagenet_c", margin=0.99)
    explicit = adapt(
        model, "eta", margin=0.99, optimizer=SGD(lr=2.5e-4, momentum=0.9, nesterov=True)
    )
    for batch in batches:
        assert torch.equal(preset(batch), explicit(batch))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"margin": -1}, "margin is -1; expected a number of 0 or more"),
        ({"decay": 1.5}, "decay is 1.5; expected a number from 0 to 1"),
        ({"entropy_threshold": "low"}, "entropy_threshold is 'low'"),
        ({"steps": 0}, "steps is 0; expected a whole number"),
        ({"episodic": 1}, "episodic is 1; expected True or False"),
        ({"optimizer": "adam"}, "optimizer is 'adam'; expected Adam"),
        ({"preset": "imagenet"}, 'unknown preset "imagenet"; did you mean "imagenet_c"'),
    ],
)
def test_wrong_hyperparameters_raise(settings: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        adapt(convolutional(), "eta", **settings)  # type: ignore[arg-type]


def test_methods_without_presets_say_so() -> None:
    with pytest.raises(OptionError, match="tema has no presets"):
        adapt(convolutional(), "tema", preset="cifar10_c")
