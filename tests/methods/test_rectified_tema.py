from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from methods.method_state import method_state
from methods.straight_line import StraightLine
from subjects import (
    CPU,
    convolutional,
    images,
    on_cpu,
    randomize,
    residual,
    signal,
    signals,
    stream,
)
from torch import Tensor, nn

from realistic_tta import AdaptedModel, OptionError, adapt


def squeeze_and_excite() -> nn.Module:
    """A published model of another kind: torchvision's MobileNetV3, 34 BatchNorm layers."""
    models = pytest.importorskip("torchvision.models")
    with on_cpu():
        model: nn.Module = models.mobilenet_v3_small(num_classes=10)
    return randomize(model)


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor], int]] = {
    "CIFAR ResNet-20": (residual, lambda size, seed: images(size, seed, side=16), 10),
    "1-D signals": (signal, signals, 7),
    "MobileNetV3": (squeeze_and_excite, lambda size, seed: images(size, seed, side=64), 10),
}


def prior_of(adapted: AdaptedModel) -> list[float]:
    prior: list[float] = method_state(adapted)["prior"].tolist()
    return prior


SIZES = [[200, 37], [16] * 6 + [5], [3] * 6 + [2], [1] * 8]


@pytest.mark.parametrize(
    ("subject", "sizes"),
    [(name, sizes) for name in ("CIFAR ResNet-20", "1-D signals") for sizes in SIZES]
    + [("MobileNetV3", [16, 16, 5])],
    ids=str,
)
def test_algorithm_1_against_a_straight_line_in_float64(subject: str, sizes: list[int]) -> None:
    """Every logit within 1e-4 and the prior within 1e-6, the last batch smaller."""
    build, make, classes = SUBJECTS[subject]
    model = build()
    reference = StraightLine(model, classes, 128)
    adapted = adapt(model, "rectified_tema")
    for batch in stream(sizes, make):
        expected = reference(batch)
        torch.testing.assert_close(adapted(batch).double(), expected, atol=1e-4, rtol=0)
        assert prior_of(adapted) == pytest.approx(reference.prior, abs=1e-6)


def test_changing_batch_sizes_follow_their_own_momentum() -> None:
    model = convolutional()
    reference = StraightLine(model.double(), 5, 256)
    adapted = adapt(model, "rectified_tema", source_batch_size=256)
    for batch in stream([64, 1, 16, 2, 200, 7, 1, 1]):
        torch.testing.assert_close(adapted(batch.double()), reference(batch), atol=1e-10, rtol=0)


def test_one_pass_predicts_with_the_prior_and_learns_the_same() -> None:
    """passes=1 leaves every statistic as two passes do; the first prediction is TEMA's own."""
    model = convolutional()
    once, twice = (adapt(model, "rectified_tema", passes=passes) for passes in (1, 2))
    tema = adapt(model, "tema")
    for number, batch in enumerate(stream([4, 16, 1, 1])):
        logits = once(batch)
        twice(batch)
        if number == 0:
            torch.testing.assert_close(logits, tema(batch))
        for name in ("target_mean", "target_variance", "prior", "batches"):
            assert torch.equal(method_state(once)[name], method_state(twice)[name]), name


def test_one_pass_freezes_with_the_prior_that_the_next_batch_would_use() -> None:
    """Eq. 6 by hand, with the prior as the weight; two passes take the last relative divergence."""
    model = convolutional()
    once = adapt(model, "rectified_tema", passes=1)
    for batch in stream([16, 4, 4]):
        once(batch)
    prior = method_state(once)["prior"]
    assert [layer.source_weight for layer in once.report().layers] == prior.tolist()
    source = model.get_submodule("4").get_buffer("running_mean")
    target = method_state(once)["target_mean"][8:20]
    expected = prior[1] * source + (1 - prior[1]) * target
    frozen = once.freeze().get_submodule("4").get_buffer("running_mean")
    torch.testing.assert_close(frozen, expected)


def test_one_layer_gets_a_quarter_of_its_source() -> None:
    """Its z-score has no spread to be measured by; the released program gives NaN there."""
    with on_cpu():
        model = randomize(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(432, 4)))
    adapted = adapt(model, "rectified_tema")
    assert torch.isfinite(adapted(images(4))).all()
    assert adapted.report().layers[0].source_weight == 0.25


def test_target_starts_at_mean_0_and_variance_1() -> None:
    """Momentum 0.25 after one batch: a quarter of the batch, three quarters of the start."""
    with on_cpu():
        model = nn.BatchNorm2d(3).eval()
    adapted = adapt(model, "rectified_tema", momentum=0.25)
    batch = images(4)
    adapted(batch)
    variance, mean = torch.var_mean(batch, dim=(0, 2, 3))
    torch.testing.assert_close(method_state(adapted)["target_mean"], mean / 4)
    torch.testing.assert_close(method_state(adapted)["target_variance"], variance / 4 + 0.75)


@pytest.mark.parametrize("method", ["tema", "rectified_tema"])
def test_target_can_start_at_the_source(method: str) -> None:
    """Then a quarter of the batch joins three quarters of the source, and reset returns there."""
    with on_cpu():
        model = randomize(nn.BatchNorm2d(3))
    source = model.get_buffer("running_mean")
    adapted = adapt(model, method, momentum=0.25, start="source")
    assert torch.equal(method_state(adapted)["target_mean"], source)
    batch = images(4)
    adapted(batch)
    expected = batch.mean((0, 2, 3)) / 4 + source * 0.75
    torch.testing.assert_close(method_state(adapted)["target_mean"], expected)
    adapted.reset()
    assert torch.equal(method_state(adapted)["target_mean"], source)


def test_layers_that_a_batch_does_not_reach_take_no_part() -> None:
    """An auxiliary head that never runs keeps its source and does not bend the z-score."""

    class WithIdleHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.idle = convolutional(), randomize(nn.BatchNorm2d(99, device=CPU))

        def forward(self, batch: Tensor) -> Tensor:
            return self.body(batch)  # type: ignore[no-any-return]

    whole = adapt(WithIdleHead(), "rectified_tema", classes=5)
    body = adapt(convolutional(), "rectified_tema", classes=5)
    for batch in stream([4, 4, 1]):
        assert torch.equal(whole(batch), body(batch))
    idle = whole.report().layers[-1]
    assert (idle.name, idle.divergence, idle.source_weight) == ("idle", None, None)
    frozen, original = (x.get_submodule("idle") for x in (whole.freeze(), WithIdleHead()))
    assert torch.equal(frozen.get_buffer("running_var"), original.get_buffer("running_var"))


def test_a_second_pass_that_would_change_little_is_left_out() -> None:
    """The first batch needs one, for the prior starts at 0; a steady stream soon does not."""
    model = convolutional()
    passes = 0

    def count(*_: object) -> None:
        nonlocal passes
        passes += 1

    always = adapt(model, "rectified_tema")
    model.register_forward_hook(count)
    when_needed = adapt(model, "rectified_tema", second_pass="when_needed")  # noqa: S106
    batch = images(16, seed=0)
    gaps = [(always(batch) - when_needed(batch)).abs().max().item() for _ in range(60)]
    assert gaps[0] == 0
    assert passes < 2 * 60
    assert max(gaps) < 0.2
    for name in ("target_mean", "target_variance", "prior", "source_weight", "batches"):
        torch.testing.assert_close(method_state(when_needed)[name], method_state(always)[name])


def test_a_wrong_second_pass_raises() -> None:
    with pytest.raises(OptionError, match="second_pass is 'never'"):
        adapt(convolutional(), "rectified_tema", second_pass="never")  # noqa: S106
