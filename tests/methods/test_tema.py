from __future__ import annotations

import copy

import pytest
import torch
from methods.method_state import method_state
from methods.straight_line import best_momentum
from subjects import convolutional, images, stream
from torch import nn

from realistic_tta import OptionError, adapt


@pytest.mark.parametrize("momentum", [0.1, 0.5, 1.0])
def test_tema_keeps_torchs_running_statistics(momentum: float) -> None:
    """One layer in train mode, started at 0 and 1, has the same running mean and variance."""
    reference = nn.BatchNorm2d(3, momentum=momentum).train()
    adapted = adapt(copy.deepcopy(reference), "tema", momentum=momentum)
    for batch in stream([5, 2, 9]):
        reference(batch)
        outputs = adapted(batch)
        state = method_state(adapted)
        torch.testing.assert_close(state["target_mean"], reference.running_mean)
        torch.testing.assert_close(state["target_variance"], reference.running_var)
        torch.testing.assert_close(outputs, copy.deepcopy(reference).eval()(batch).detach())


@pytest.mark.parametrize(("classes", "source_batch_size"), [(5, 128), (1000, 256)])
def test_the_momentum_is_chosen_for_each_batch_by_its_size(
    classes: int, source_batch_size: int
) -> None:
    """A layer of torch that is given the momentum of Eq. 5 before each batch."""
    reference = nn.BatchNorm2d(3).train()
    adapted = adapt(
        copy.deepcopy(reference), "tema", classes=classes, source_batch_size=source_batch_size
    )
    for batch in stream([200, 1, 16, 64, 2, 4]):
        reference.momentum = best_momentum(classes, source_batch_size, len(batch))
        reference(batch)
        adapted(batch)
        state = method_state(adapted)
        torch.testing.assert_close(state["target_mean"], reference.running_mean)
        torch.testing.assert_close(state["target_variance"], reference.running_var)


def test_the_number_of_classes_is_that_of_the_last_linear_layer() -> None:
    found, expected = adapt(convolutional(5), "tema"), adapt(convolutional(5), "tema", classes=5)
    for batch in stream([1, 16, 4]):
        assert torch.equal(found(batch), expected(batch))
    with pytest.raises(OptionError, match=r"no Linear layer .* classes=10"):
        adapt(nn.BatchNorm2d(3), "tema")


def test_reset_returns_to_the_start() -> None:
    adapted = adapt(convolutional(), "tema")
    first = adapted(images(4))
    assert not torch.equal(adapted(images(4)), first)
    adapted.reset()
    assert torch.equal(adapted(images(4)), first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "zero"}, "start is 'zero'; expected"),
        ({"momentum": 0}, "momentum is 0; expected a number from 1e-06 to 1"),
        ({"momentum": 1.5}, "momentum is 1.5; expected a number from 1e-06 to 1"),
        ({"momentum": "fast"}, "momentum is 'fast'; expected a number .* or \"auto\""),
        ({"momentum": float("nan")}, "momentum is nan; expected a number"),
        ({"classes": 0}, "classes is 0; expected a whole number of 1 or more"),
        ({"classes": 2.5}, "classes is 2.5; expected a whole number"),
        ({"source_batch_size": -8}, "source_batch_size is -8"),
    ],
)
def test_wrong_hyperparameters_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        adapt(convolutional(), "tema", **options)  # type: ignore[arg-type]
