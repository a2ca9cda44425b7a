"""realistic against a loop over all images of the stream, and its promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from methods.method_state import method_state
from methods.straight_line_realistic import StraightLineRealistic
from subjects import (
    convolutional,
    images,
    on_cpu,
    randomize,
    residual,
    same,
    signal,
    signals,
    snapshot,
    stream,
)
from torch import Tensor, nn

from realistic_tta import AdaptedModel, OptionError, adapt
from realistic_tta.data.bundled_images import first_of_each_class, load_bundled_images
from realistic_tta.models.checkpoints import load_model


def weights_of(adapted: AdaptedModel) -> list[float]:
    """The source weight of each layer in the last prediction."""
    found: list[float] = method_state(adapted)["source_weight"].tolist()
    return found


def agree(adapted: AdaptedModel, reference: StraightLineRealistic, batches: list[Tensor]) -> None:
    """Predictions and source weights within 1e-6, in float64."""
    for batch in batches:
        expected = reference(batch)
        torch.testing.assert_close(adapted(batch.double()), expected, atol=1e-6, rtol=0)
        assert weights_of(adapted) == pytest.approx(reference.source_weights, abs=1e-6)


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor]]] = {
    "images": (convolutional, images),
    "signals": (signal, signals),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("sizes", [[5] * 6, [1] * 12, [16] * 4, [1, 16, 5, 1, 2]], ids=str)
def test_predictions_are_those_of_a_loop_over_images(subject: str, sizes: list[int]) -> None:
    build, make = SUBJECTS[subject]
    model = build().double()
    agree(adapt(model), StraightLineRealistic(model), stream(sizes, make))


@pytest.mark.parametrize("size", [1, 4, 16])
def test_a_new_domain_replaces_the_past(size: int) -> None:
    """After a change, the average soon holds images of the new domain alone."""
    model = convolutional().double()
    adapted, reference = adapt(model), StraightLineRealistic(model)
    agree(adapted, reference, stream([size] * (48 // size)))
    assert reference.replaced == 0
    replaced = []
    for seed in range(32 // size):
        agree(adapted, reference, [3 * images(size, seed=seed) + 5])
        replaced.append(reference.replaced)
    assert max(replaced) > 0.5
    old = sum(reference.long[0].weights[:48])
    by_age = (0.1 ** (32 / 128) - 0.1 ** (80 / 128)) / (1 - 0.1 ** (80 / 128))
    assert old < 0.6 * by_age


class WithClasses(nn.Module):
    """Only the last of three BatchNorms sees the class of an image."""

    def __init__(self, patterns: Tensor) -> None:
        super().__init__()
        with on_cpu():
            self.first, self.second = (randomize(nn.BatchNorm2d(3), seed=seed) for seed in (0, 1))
            self.last = randomize(nn.BatchNorm1d(len(patterns)))
        self.register_buffer("patterns", patterns)

    def forward(self, batch: Tensor) -> Tensor:
        level = self.second(self.first(batch)).mean(dim=(1, 2, 3))
        found = batch.flatten(1) @ self.get_buffer("patterns").flatten(1).T
        outputs: Tensor = self.last(found / 100) + level[:, None]
        return outputs


def test_runs_of_labels_raise_the_chance_and_the_threshold_of_a_new_domain() -> None:
    """Runs of twelve images, brighter from the eighth run on."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(4, 3, 12, 12, generator=generator, dtype=torch.float64)
    patterns -= patterns.mean(dim=(2, 3), keepdim=True)
    model = WithClasses(patterns).double()
    adapted = adapt(model, "realistic", source_batch_size=64)
    reference = StraightLineRealistic(model, source_batch=64)
    times, replaced = [], []
    for number in range(36):
        level = torch.rand(4, 3, 1, 1, generator=generator, dtype=torch.float64)
        noise = torch.randn(4, 3, 12, 12, generator=generator, dtype=torch.float64)
        shift = 2.0 if number >= 24 else 0.0
        agree(adapted, reference, [patterns[number // 3 % 4] + level + noise / 4 + shift])
        times.append(reference.correlation_time)
        replaced.append(reference.replaced)
    assert times[23] > 2
    assert max(replaced[:24]) == 0
    assert 0 < max(replaced[24:]) < 1


def test_a_deep_model_agrees_within_float32() -> None:
    """Nineteen layers, in the model's own precision."""
    model = residual()
    adapted, reference = adapt(model, "realistic"), StraightLineRealistic(model)
    for batch in stream([4, 1, 1, 9], side=16):
        torch.testing.assert_close(adapted(batch).double(), reference(batch), atol=1e-3, rtol=0)
    assert 0.5 < min(reference.source_weights) < 1


@pytest.mark.parametrize(("source_batch_size", "maximum"), [(8, 0.5), (256, 0.9), (128, 0.0)])
def test_hyperparameters_set_the_decay_and_the_largest_weight(
    source_batch_size: int, maximum: float
) -> None:
    model = convolutional().double()
    adapted = adapt(
        model, "realistic", source_batch_size=source_batch_size, max_target_weight=maximum
    )
    reference = StraightLineRealistic(model, source_batch_size, maximum)
    agree(adapted, reference, stream([5, 9, 1, 4]))
    assert all(1 - maximum <= weight <= 1 for weight in weights_of(adapted))


def test_a_largest_weight_of_0_is_the_source() -> None:
    model = convolutional()
    adapted = adapt(model, "realistic", max_target_weight=0.0)
    for batch in stream([4, 9]):
        torch.testing.assert_close(adapted(batch), model(batch).detach())


def test_the_first_image_is_predicted_by_the_source() -> None:
    """A single image has no variance between images, so that its statistics have weight 0."""
    model = convolutional()
    adapted = adapt(model, "realistic")
    torch.testing.assert_close(adapted(images(1)), model(images(1)).detach())
    assert weights_of(adapted) == [1.0] * 3
    adapted(images(1, seed=1))
    assert min(weights_of(adapted)) < 1


def vectors() -> nn.Module:
    """A model with 1 x 1 feature maps: one value per image and channel."""
    with on_cpu():
        return randomize(
            nn.Sequential(
                nn.Conv2d(3, 6, 12),
                nn.BatchNorm2d(6),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(6, 5),
                nn.BatchNorm1d(5),
            )
        )


@pytest.mark.parametrize("sizes", [[1] * 8, [3, 1, 1, 5]], ids=str)
def test_feature_maps_of_a_single_position_work_at_any_batch_size(sizes: list[int]) -> None:
    model = vectors().double()
    adapted = adapt(model, "realistic")
    agree(adapted, StraightLineRealistic(model), stream(sizes))
    if sizes[0] == 1:
        adapted.reset()
        batch = images(1).double()
        torch.testing.assert_close(adapted(batch), model(batch).detach())


class Twice(nn.Module):
    """Uses its BatchNorm twice in one forward, on inputs of different sizes."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.norm, self.last = nn.BatchNorm2d(3), nn.Linear(3, 4)

    def forward(self, batch: Tensor) -> Tensor:
        once = self.norm(batch)
        again = self.norm(once[:, :, ::2, ::2] + 1)
        outputs: Tensor = self.last(again.mean(dim=(2, 3)))
        return outputs


@pytest.mark.parametrize("sizes", [[5, 9], [1] * 4], ids=str)
def test_all_uses_of_a_layer_in_a_pass_count_as_one_batch(sizes: list[int]) -> None:
    """The target mean after the first batch is that of both uses; images are counted once."""
    model = randomize(Twice()).double()
    adapted, inputs = adapt(model, "realistic"), []
    hook = adapted.norm.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    batches = stream(sizes)
    adapted(batches[0].double())
    hook.remove()
    expected = (inputs[0].mean(dim=(0, 2, 3)) + inputs[1].mean(dim=(0, 2, 3))) / 2
    torch.testing.assert_close(method_state(adapted)["target_mean"], expected)
    assert method_state(adapted)["weight"].tolist() == [[sizes[0]] * 2]
    for batch in batches[1:]:
        assert torch.isfinite(adapted(batch.double())).all()


class InTwoParts(nn.Module):
    """Passes a batch through its BatchNorm at once, or in two parts one after the other."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.norm = randomize(nn.BatchNorm2d(3))

    def forward(self, batch: Tensor) -> Tensor:
        return torch.cat([self.norm(part) for part in batch.chunk(self.parts)])


def test_the_state_does_not_depend_on_how_a_layer_is_used() -> None:
    """The same images at once or in two uses of the layer leave the same sums behind."""
    whole, parts = (adapt(InTwoParts(parts), "realistic").double() for parts in (1, 2))
    for batch in stream([6, 4, 2]):
        whole(batch.double())
        parts(batch.double())
    one, other = method_state(whole), method_state(parts)
    assert one.keys() == other.keys()
    for name, expected in one.items():
        torch.testing.assert_close(other[name], expected)


def test_the_order_within_a_batch_does_not_matter() -> None:
    adapted, reversed_ = (adapt(convolutional().double(), "realistic") for _ in range(2))
    for batch in stream([6, 4]):
        outputs = adapted(batch.double())
        torch.testing.assert_close(reversed_(batch.double().flip(0)).flip(0), outputs)


class WithSwitch(nn.Module):
    """A head with a BatchNorm that only bright batches reach."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.body = randomize(nn.BatchNorm2d(3))
            self.head = randomize(nn.BatchNorm2d(3), seed=1)

    def forward(self, batch: Tensor) -> Tensor:
        outputs: Tensor = self.body(batch)
        return self.head(outputs) if batch.mean() > 5 else outputs


def test_layers_that_a_batch_does_not_reach_stay_as_they_were() -> None:
    """The age of an image counts the images that its layer has seen since."""
    model = WithSwitch().double()
    adapted, reference = adapt(model, "realistic"), StraightLineRealistic(model)
    agree(adapted, reference, [images(3), images(2, seed=1)])
    head = adapted.report().layers[-1]
    assert (head.name, head.divergence, head.source_weight) == ("head", None, None)
    frozen = adapted.freeze().get_submodule("head")
    assert same(snapshot(frozen), snapshot(model.head))

    agree(adapted, reference, [images(4, seed=2) + 9])
    before = method_state(adapted)
    agree(adapted, reference, [images(4, seed=3)])
    after = method_state(adapted)
    for name in ("target_mean", "target_variance", "means", "variances"):
        assert torch.equal(after[name][..., 3:], before[name][..., 3:])
    for name in ("source_weight", "weight", "squared_weight"):
        assert torch.equal(after[name][1], before[name][1])


def test_reset_forgets_everything() -> None:
    adapted = adapt(convolutional(), "realistic")
    start = method_state(adapted)
    first = [adapted(batch) for batch in stream([5, 1, 3])]
    adapted.reset()
    assert same(method_state(adapted), start)
    again = [adapted(batch) for batch in stream([5, 1, 3])]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_the_frozen_copy_predicts_as_the_last_batch_was() -> None:
    adapted = adapt(convolutional(), "realistic")
    for batch in stream([5, 1, 3]):
        outputs = adapted(batch)
        torch.testing.assert_close(adapted.freeze()(batch).detach(), outputs, atol=1e-5, rtol=1e-5)


def test_a_long_stream_of_constant_images_stays_finite() -> None:
    """Nothing differs between images, so no distance is chance: the target gets all it can."""
    adapted = adapt(convolutional(), "realistic")
    for _ in range(40):
        outputs = adapted(torch.full((1, 3, 12, 12), 0.7))
    assert torch.isfinite(outputs).all()
    assert weights_of(adapted) == pytest.approx([0.5] * 3, abs=1e-3)


def test_black_frames_leave_no_trace_for_long() -> None:
    """As of a camera that fails for a while: the runs that they are do not count for ever."""
    adapted = adapt(convolutional(), "realistic")
    for batch in [*stream([8] * 8), *[torch.zeros(8, 3, 12, 12)] * 40, *stream([8] * 60)]:
        assert torch.isfinite(adapted(batch)).all()
    assert method_state(adapted)["correlation_time"] < 3
    assert max(weights_of(adapted)) < 0.6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_target_weight": 1.5}, "max_target_weight is 1.5; expected a number from 0 to 1"),
        ({"source_batch_size": 0}, "source_batch_size is 0; expected a whole number of 1 or more"),
        ({"momentum": 0.1}, 'realistic has no option "momentum"; tema and rectified_tema do'),
    ],
)
def test_wrong_hyperparameters_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        adapt(convolutional(), "realistic", **options)  # type: ignore[arg-type]


def test_a_layer_is_reported_after_its_first_image() -> None:
    """A single image has no weight yet, but its divergence is known."""
    adapted = adapt(convolutional(), "realistic")
    assert [each.source_weight for each in adapted.report().layers] == [None] * 3
    adapted(images(1))
    for layer in adapted.report().layers:
        assert layer.source_weight == 1
        assert layer.divergence is not None
        assert layer.divergence > 0


def test_the_report_tells_the_distance_from_the_source_and_that_of_chance() -> None:
    """Both by hand for one layer: the images' means against the source, in its deviations."""
    norm: Any = randomize(nn.BatchNorm2d(3))
    adapted = adapt(nn.Sequential(norm), "realistic").double()
    assert (adapted.report().images, adapted.report().distance) == (0, None)
    batches = stream([4, 1, 3])
    for batch in batches:
        adapted(batch.double())
    means = torch.cat(batches).double().mean(dim=(2, 3))
    ages = torch.tensor([4.0] * 4 + [3.0] + [0.0] * 3, dtype=torch.float64)
    weights = 0.1 ** (ages / 128)
    weights /= weights.sum()
    mean = weights @ means
    scale = norm.running_var.double() + 1e-5
    distance = ((mean - norm.running_mean.double()) ** 2 / scale).mean().sqrt().item()
    others = 1 / weights.square().sum() - 1
    chance = (weights @ (means - mean) ** 2 / others / scale).mean().sqrt().item()
    report = adapted.report()
    assert report.images == 8
    assert report.distance == pytest.approx(distance, rel=1e-5)
    assert report.chance == pytest.approx(chance, rel=1e-5)
    assert f"after 8 images, the stream is {distance:.2f} source" in str(report)
    adapted.reset()
    assert (adapted.report().images, adapted.report().distance) == (0, None)


@pytest.fixture(scope="module")
def photographs() -> tuple[Tensor, Tensor]:
    """1,000 clean photographs, one hundred of each class, and their labels."""
    found = load_bundled_images()
    few = first_of_each_class(found.labels, 100)
    pixels = torch.from_numpy(found.images[few]).permute(0, 3, 1, 2)
    return pixels / 255, torch.from_numpy(found.labels[few])


def distance_by_chance(adapted: AdaptedModel) -> float:
    """By hand from the state: the standard error of ten images, in runs of correlated ones."""
    state = method_state(adapted)
    total, squares = state["weight"][:, 0], state["squared_weight"][:, 0]
    assert (total**2 / squares > 11).all()
    time = state["correlation_time"]
    start, found = 0, []
    norms = [m for m in load_model("cifar10").modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        between = state["variances"][0, 1, start : start + norm.num_features]
        assert norm.running_var is not None
        found.append((between / norm.running_var).mean() * time**2 / 10)
        start += norm.num_features
    return torch.stack(found).mean().sqrt().item()


@pytest.mark.xdist_group("photographs in runs")
def test_runs_of_labels_are_noticed_and_clean_images_left_to_the_source(
    photographs: tuple[Tensor, Tensor],
) -> None:
    """Sorted by label: after the first classes the error is near the source's."""
    pixels, labels = photographs
    order = labels.argsort(stable=True)
    model = load_model("cifar10")
    adapted = adapt(model, "realistic")
    wrong = torch.cat([adapted(x).argmax(1) for x in pixels[order].split(20)]) != labels[order]
    with torch.no_grad():
        by_source = model(pixels[order]).argmax(1) != labels[order]
    assert wrong[300:].float().mean() < by_source[300:].float().mean() + 0.05
    report = adapted.report()
    assert report.correlation_time is not None
    assert report.correlation_time > 2
    assert "labels seem to come in runs" in str(report)
    assert report.chance == pytest.approx(distance_by_chance(adapted), rel=1e-4)


@pytest.mark.xdist_group("photographs in runs")
def test_random_order_has_no_runs(photographs: tuple[Tensor, Tensor]) -> None:
    pixels, _ = photographs
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    adapted = adapt(load_model("cifar10"), "realistic")
    for batch in pixels[order].split(20):
        adapted(batch)
    report = adapted.report()
    assert report.correlation_time is not None
    assert 1 <= report.correlation_time < 1.5
    assert "runs" not in str(report)
