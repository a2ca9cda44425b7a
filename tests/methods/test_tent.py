from __future__ import annotations

import copy

import torch
from methods._training.plain_training import tent
from methods.method_state import method_state
from subjects import convolutional, images, on_cpu, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import SGD, Adam, adapt
from realistic_tta.functional.entropy import entropy

SIZES = [16, 5, 1, 32, 3]


def close(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_the_first_prediction_is_from_before_the_update() -> None:
    batch = images(8)
    torch.testing.assert_close(
        adapt(convolutional(), "tent")(batch),
        adapt(convolutional(), "tbn")(batch),
        atol=1e-5,
        rtol=1e-5,
    )


def test_a_stream_is_predicted_as_by_a_plain_torch_program() -> None:
    adapted = adapt(convolutional(), "tent")
    found = [adapted(batch) for batch in stream(SIZES)]
    close(found, tent(convolutional(), stream(SIZES), torch.optim.Adam, lr=1e-3))
    still = adapt(convolutional(), "tbn")
    assert (found[-1] - still(stream(SIZES)[-1])).abs().max() > 1e-3


def test_the_imagenet_preset_is_sgd_with_nesterov() -> None:
    adapted = adapt(convolutional(), "tent", preset="imagenet_c")
    found = [adapted(batch) for batch in stream(SIZES)]
    expected = tent(
        convolutional(), stream(SIZES), torch.optim.SGD, lr=2.5e-4, momentum=0.9, nesterov=True
    )
    close(found, expected)


def test_three_steps_are_the_batch_three_times() -> None:
    adapted = adapt(convolutional(), "tent", steps=3)
    found = [adapted(batch) for batch in stream([4, 8])]
    thrice = [batch for batch in stream([4, 8]) for _ in range(3)]
    close(found, tent(convolutional(), thrice, torch.optim.Adam, lr=1e-3)[2::3])


def test_episodic_forgets_before_each_batch() -> None:
    adapted = adapt(convolutional(), "tent", episodic=True, steps=2)
    for batch in stream([4, 8, 1]):
        assert torch.equal(adapted(batch), adapt(convolutional(), "tent", steps=2)(batch))
    assert adapted.report().batches == 3


def test_entropy_falls_on_a_batch_that_is_shown_again_and_again() -> None:
    adapted = adapt(convolutional(), "tent", optimizer=Adam(lr=0.05))
    batch = images(32)
    curve = [entropy(adapted(batch)).mean().item() for _ in range(30)]
    assert curve[-1] < 0.8 * curve[0]


def test_the_entropy_gradient_is_the_hand_derived_one() -> None:
    """A linear layer, a BatchNorm, a linear layer; one step of SGD with lr 1 is the gradient.

    dH/dz = -p (log p + H); z = W (weight * x + bias) + b with x the normalized input.
    """
    with on_cpu():
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 5)).double()
    batch = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    adapted = adapt(model, "tent", optimizer=SGD(lr=1.0))
    logits = adapted(batch)

    first, normalize, last = (copy.deepcopy(layer) for layer in model.children())
    assert isinstance(normalize, nn.BatchNorm1d)
    assert isinstance(last, nn.Linear)
    inputs = first(batch).detach()
    x = (inputs - inputs.mean(0)) / torch.sqrt(inputs.var(0, correction=0) + 1e-5)  # (image, 3)
    z = (x * normalize.weight + normalize.bias) @ last.weight.T + last.bias
    p = z.softmax(dim=1)
    h = -(p * p.log()).sum(dim=1, keepdim=True)
    by_z = -p * (p.log() + h) / len(batch)  # (image, class)
    by_y = (by_z @ last.weight).detach()  # (image, 3)
    torch.testing.assert_close(logits, z.detach())
    plain = adapted.freeze()
    torch.testing.assert_close(
        plain.get_parameter("1.weight").detach(),
        normalize.weight.detach() - (by_y * x).sum(dim=0),
    )
    torch.testing.assert_close(
        plain.get_parameter("1.bias").detach(), normalize.bias.detach() - by_y.sum(dim=0)
    )


def test_only_the_trained_weights_differ_in_the_frozen_model() -> None:
    model = convolutional()
    adapted = adapt(model, "tent")
    adapted(images(8))
    before, after = snapshot(model), snapshot(adapted.freeze())
    differs = {name for name in before if not torch.equal(before[name], after[name])}
    parts = ("weight", "bias", "running_mean", "running_var")
    assert differs == {f"{layer}.{part}" for layer in (1, 4, 7) for part in parts}


def test_nothing_is_left_behind_in_gradients() -> None:
    adapted = adapt(convolutional(), "tent")
    before = source_tensors(adapted)
    outputs = adapted(images(4).requires_grad_())
    assert not outputs.requires_grad
    assert same(before, source_tensors(adapted))
    assert all(own.grad is None for own in adapted.parameters())
    assert not any(own.requires_grad for own in adapted.buffers())


def source_tensors(adapted: nn.Module) -> dict[str, Tensor]:
    """The tensors of the model inside, which keep their source values."""
    remembered = {f"_model.{name}" for name in method_state(adapted)}
    found = snapshot(adapted)
    return {
        name: found[name] for name in found if name.startswith("_model.") and name not in remembered
    }
