"""Many small batches in one forward are what they are one by one: predictions and state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from subjects import convolutional, images, interrupted_after, same, signal, signals, snapshot
from torch import Tensor, nn

from realistic_tta import METHODS, adapt
from realistic_tta.errors import InputError, ModelError
from realistic_tta.methods.base import AdaptedModel
from realistic_tta.methods.replay import REPLAYS, replay
from realistic_tta.methods.replayable import why_not
from realistic_tta.models.checkpoints import load_model

VARIANTS: dict[str, dict[str, Any]] = {
    "source": {"method": "source"},
    "tbn": {"method": "tbn"},
    "alpha_bn": {"method": "alpha_bn"},
    "adapt_bn": {"method": "adapt_bn"},
    "tema": {"method": "tema"},
    "tema, started at the source": {"method": "tema", "start": "source"},
    "tema that forgets at once": {"method": "tema", "momentum": 1.0},
    "rectified_tema": {"method": "rectified_tema"},
    "rectified_tema, one pass": {"method": "rectified_tema", "passes": 1},
}
SIZES = {
    "one by one": [1] * 9,
    "two": [2] * 6,
    "five, three left over": [5, 5, 5, 3],
    "sixteen": [16, 16],
    "an odd end in the middle": [4, 4, 1, 4, 4, 2],
}


def pair(network: nn.Module, how: dict[str, Any]) -> tuple[AdaptedModel, AdaptedModel]:
    """The method twice, both after the same first batch."""
    both = adapt(network, **how), adapt(network, **how)
    for each in both:
        each(images(3, seed=99))
    return both


def check_equal(one: AdaptedModel, many: AdaptedModel, stream: Tensor, sizes: list[int]) -> int:
    """Calls one, replays the other; how many sweeps it took."""
    expected = torch.cat([one(batch) for batch in stream.split(sizes)])
    outputs, sweeps = replay(many, stream, sizes)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-4)
    assert torch.equal(outputs.argmax(1), expected.argmax(1))
    before, after = one.state_dict(), many.state_dict()
    assert before.keys() == after.keys()
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=1e-5, atol=1e-5, msg=name)
    assert torch.equal(one.step, many.step)
    return sweeps


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_replay_is_equal_to_the_calls_it_stands_for(variant: str, sizes: str) -> None:
    """In predictions, and in the state it leaves, from a state that is not the start."""
    one, many = pair(convolutional(), VARIANTS[variant])
    check_equal(one, many, images(sum(SIZES[sizes])), SIZES[sizes])


@pytest.mark.parametrize("variant", ["tbn", "adapt_bn", "tema", "rectified_tema"])
def test_a_trained_network_is_replayed_chunk_by_chunk(variant: str) -> None:
    """The package's network, two chunks, the second darker and ending in a smaller batch."""
    network = load_model("cifar10")
    one, many = (adapt(network, **VARIANTS[variant]) for _ in range(2))
    stream = images(21, side=32)
    sweeps = [
        check_equal(one, many, stream[:12], [2] * 6),
        check_equal(one, many, stream[12:] * 0.5, [2, 2, 2, 2, 1]),
    ]
    assert max(sweeps) <= 5


def test_no_more_sweeps_are_needed_than_there_are_batches() -> None:
    """The first batch's prior is known, so one sweep is exact for it, and so on."""
    one, many = pair(convolutional(), VARIANTS["rectified_tema"])
    assert check_equal(one, many, images(4), [4]) == 1
    one, many = pair(convolutional(), VARIANTS["rectified_tema"])
    assert check_equal(one, many, images(4), [2, 2]) <= 2


def test_layers_without_positions_and_without_parameters_are_replayed() -> None:
    one, many = (adapt(signal(), "rectified_tema") for _ in range(2))
    assert why_not(many, signals(2)) is None
    check_equal(one, many, signals(9), [2, 2, 5])


def test_features_of_images_are_replayed_but_not_one_at_a_time() -> None:
    """(image, channel): a batch of one has no variance, replayed or not."""
    features = torch.rand(6, 4)
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    one, many = (adapt(network.eval(), "tema") for _ in range(2))
    check_equal(one, many, features, [2, 4])
    before = snapshot(many)
    with pytest.raises(InputError, match="no variance"):
        replay(many, features, [1] * 6)
    assert same(before, many.state_dict())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_are_replayed(dtype: torch.dtype) -> None:
    network = convolutional().to(dtype)
    one, many = (adapt(network, "rectified_tema") for _ in range(2))
    stream = images(8).to(dtype)
    expected = torch.cat([one(batch) for batch in stream.split(2)])
    outputs, _ = replay(many, stream, [2] * 4)
    assert outputs.dtype == dtype
    tolerance = 1e-9 if dtype is torch.float64 else 0.05
    torch.testing.assert_close(outputs, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_replay_that_is_interrupted_leaves_the_state_as_it_was(variant: str) -> None:
    _, many = pair(convolutional(), VARIANTS[variant])
    before = snapshot(many)
    with interrupted_after(0, many.network), pytest.raises(KeyboardInterrupt):
        replay(many, images(6), [2] * 3)
    broken = images(6)
    broken[4] = torch.nan
    with pytest.raises(InputError, match="NaN"):
        replay(many, broken, [2] * 3)
    with pytest.raises(InputError, match="expected 6 in all"):
        replay(many, images(6), [2] * 2)
    assert same(before, many.state_dict())
    one, _ = pair(convolutional(), VARIANTS[variant])
    check_equal(one, many, images(6), [2] * 3)


def test_values_that_overflow_are_told_with_their_layer() -> None:
    many = adapt(convolutional(), "tema")
    before = snapshot(many)
    with pytest.raises(InputError, match='layer "1" measured NaN or Inf'):
        replay(many, images(4) * 1e25, [2, 2])
    assert same(before, many.state_dict())


class Twice(nn.Module):
    """A layer that is used twice in one pass."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.classify = nn.BatchNorm2d(3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.classify(self.norm(self.norm(x)).mean((2, 3)))
        return outputs


class Together(nn.Module):
    """Looks at the other images of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.classify = nn.BatchNorm2d(3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.classify(self.norm(x - x.mean()).mean((2, 3)))
        return outputs


class WithActivation(nn.BatchNorm2d):
    """Does more than normalise."""


def without_source() -> nn.Module:
    norm = nn.BatchNorm2d(3, track_running_stats=False)
    return nn.Sequential(norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)).eval()


def refused(network: nn.Module, method: str = "tema", **how: Any) -> str | None:
    return why_not(adapt(network, method, classes=2, **how), images(2))


def test_what_cannot_be_replayed_is_refused_with_the_reason() -> None:
    assert refused(convolutional()) is None
    for method in ("lame", "tent", "cotta"):
        assert "is none of source, tbn" in str(refused(convolutional(), method))
    assert 'layer "norm" is used 2 times' in str(refused(Twice().eval()))
    assert "images beside it" in str(refused(Together().eval()))
    for method in ("tema", "source"):
        told = 'layer "0" (BatchNorm2d) has no source statistics'
        assert refused(without_source(), method) == told
    more = nn.Sequential(WithActivation(3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    assert "WithActivation" in str(refused(more.eval()))
    needed = refused(convolutional(), "rectified_tema", second_pass="when_needed")  # noqa: S106
    assert "batch by batch" in str(needed)


def test_a_refusal_is_no_lesson() -> None:
    adapted = adapt(convolutional(), "rectified_tema")
    before = snapshot(adapted)
    assert why_not(adapted, images(2)) is None
    assert same(before, adapted.state_dict())
    assert not any(layer._forward_hooks for layer in adapted.network.modules())


def test_replaying_what_cannot_be_is_an_error_and_no_lesson() -> None:
    adapted = adapt(Twice().eval(), "tema", classes=2)
    before = snapshot(adapted)
    with pytest.raises(ModelError, match="used twice"):
        replay(adapted, images(4), [2, 2])
    assert same(before, adapted.state_dict())
    with pytest.raises(ModelError, match="tent cannot be replayed"):
        replay(adapt(convolutional(), "tent"), images(4), [2, 2])


def test_the_methods_that_can_be_replayed_are_those_of_the_catalogue() -> None:
    assert set(REPLAYS) <= set(METHODS.values())
    assert {how["method"] for how in VARIANTS.values()} == {each.name for each in REPLAYS}
