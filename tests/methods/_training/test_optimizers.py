from __future__ import annotations

import pytest
import torch
from torch import Tensor

from realistic_tta import OptionError
from realistic_tta.methods._training.optimizers import SGD, Adam

OPTIMIZERS: dict[str, tuple[Adam | SGD, type[torch.optim.Optimizer], dict[str, object]]] = {
    "adam": (Adam(lr=1e-3), torch.optim.Adam, {"lr": 1e-3}),
    "adam, other betas": (
        Adam(lr=0.02, betas=(0.5, 0.9), eps=1e-6, weight_decay=0.1),
        torch.optim.Adam,
        {"lr": 0.02, "betas": (0.5, 0.9), "eps": 1e-6, "weight_decay": 0.1},
    ),
    "adam without averages": (
        Adam(lr=0.02, betas=(0.0, 0.0)),
        torch.optim.Adam,
        {"lr": 0.02, "betas": (0.0, 0.0)},
    ),
    "sgd": (SGD(lr=0.1), torch.optim.SGD, {"lr": 0.1}),
    "sgd with momentum": (
        SGD(lr=0.1, momentum=0.9, weight_decay=0.01),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    ),
    "sgd with nesterov": (
        SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
    ),
}


def gradients(count: int) -> list[Tensor]:
    """Of very different sizes, some of them 0."""
    generator = torch.Generator().manual_seed(1)
    scale = torch.tensor([1e-6, 1e-3, 1.0, 100.0, 0.0])
    return [torch.randn(5, generator=generator) * scale for _ in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_many_steps_are_those_of_torchs_optimizer(name: str, dtype: torch.dtype) -> None:
    ours, kind, settings = OPTIMIZERS[name]
    weights = torch.linspace(-1, 1, 5, dtype=dtype)
    parameter = torch.nn.Parameter(weights.clone())
    theirs = kind([parameter], **settings)  # type: ignore[arg-type]
    memory = ours.start(weights)
    for gradient in gradients(40):
        parameter.grad = gradient.to(dtype)
        theirs.step()
        weights, memory = ours.update(weights, gradient.to(dtype), memory)
        if isinstance(ours, SGD):
            assert torch.equal(weights, parameter.detach())
        else:
            tolerance = 1e-6 if dtype == torch.float32 else 1e-14
            torch.testing.assert_close(weights, parameter.detach(), rtol=tolerance, atol=tolerance)


def test_adams_first_steps_are_as_long_as_lr_to_six_digits() -> None:
    """With a gradient that stays the same; 1 - 0.999 in float32 would be off in the fifth."""
    adam, weights = Adam(lr=1e-3), torch.zeros(1)
    memory = adam.start(weights)
    for count in range(1, 4):
        weights, memory = adam.update(weights, torch.ones(1), memory)
        assert weights.item() == pytest.approx(-1e-3 * count, rel=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_changes_nothing_it_was_given(name: str) -> None:
    ours, _, _ = OPTIMIZERS[name]
    weights, gradient = torch.ones(5), gradients(1)[0]
    memory = ours.start(weights)
    before = {key: value.clone() for key, value in memory.items()}
    _, after = ours.update(weights, gradient, memory)
    assert torch.equal(weights, torch.ones(5))
    assert torch.equal(gradient, gradients(1)[0])
    assert memory.keys() == after.keys()
    assert all(torch.equal(memory[key], before[key]) for key in memory)


def test_wrong_hyperparameters_raise() -> None:
    with pytest.raises(OptionError, match="lr is -1; expected a number of 0 or more"):
        SGD(lr=-1)
    with pytest.raises(OptionError, match="momentum is 2"):
        SGD(lr=1, momentum=2)
    with pytest.raises(OptionError, match=r"betas is 0.9; expected a tuple of 2"):
        Adam(lr=1, betas=0.9)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"betas is \(0.9, 1.0\); expected .* from 0 to 0.999999"):
        Adam(lr=1, betas=(0.9, 1.0))
