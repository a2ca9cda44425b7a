from __future__ import annotations

import itertools
import math

import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import ModelError, OptionError, adapt
from realistic_tta.methods.lame import affinity, energy, laplacian_optimization


def unary_of(probabilities: list[list[float]]) -> Tensor:
    return -torch.log(torch.tensor(probabilities, dtype=torch.float64) + 1e-10)


def objective(unary: Tensor, kernel: Tensor, labels: Tensor) -> Tensor:
    """What the fixed point minimizes: each pair of images counts once, hence the half."""
    entropy = torch.special.entr(labels).sum(dim=(-2, -1))
    pairs = (labels * (kernel @ labels)).sum(dim=(-2, -1))
    total: Tensor = (unary * labels).sum(dim=(-2, -1)) - pairs / 2 - entropy
    return total


def test_the_fixed_point_is_the_minimum_found_by_trying_everything() -> None:
    """Three images, two classes: 101 ** 3 labelings; then finer around the best."""
    unary = unary_of([[0.9, 0.1], [0.45, 0.55], [0.2, 0.8]])
    kernel = torch.tensor([[1.0, 0.8, 0.1], [0.8, 1.0, 0.3], [0.1, 0.3, 1.0]], dtype=torch.float64)
    found = laplacian_optimization(unary, kernel, iterations=1000, tolerance=0.0).exp()
    low, high = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    for _ in range(3):
        axes = [torch.linspace(float(a), float(b), 101) for a, b in zip(low, high, strict=True)]
        first = torch.cartesian_prod(*(axis.double() for axis in axes))  # (labelling, image)
        labels = torch.stack([first, 1 - first], dim=-1)  # (labelling, image, class)
        best = first[objective(unary, kernel, labels).argmin()]
        width = (high - low) / 50
        low, high = (best - width).clamp_min(0), (best + width).clamp_max(1)
    torch.testing.assert_close(found[:, 0], best, atol=1e-4, rtol=0)
    assert found[1, 0] > 0.5  # the second image follows its nearest neighbour


def test_every_round_lowers_the_objective() -> None:
    generator = torch.Generator().manual_seed(2)
    unary = -torch.randn(12, 4, generator=generator).log_softmax(dim=1)
    kernel = affinity(torch.randn(12, 6, generator=generator), neighbors=5)
    assert kernel is not None
    curve = [
        objective(unary, kernel, laplacian_optimization(unary, kernel, rounds, 0.0).exp()).item()
        for rounds in range(1, 12)
    ]
    assert all(after <= before + 1e-5 for before, after in itertools.pairwise(curve))
    assert curve[-1] < curve[0] - 0.1


def test_the_kernel_by_hand() -> None:
    """Unit vectors at 0, 60 and 180 degrees: distances 1, 2 and sqrt(3)."""
    features = torch.tensor([[2.0, 0.0], [0.5, math.sqrt(0.75)], [-3.0, 0.0]])
    width = (1 + 1 + math.sqrt(3)) / 3  # to the second nearest, oneself the first
    kernel = affinity(features, neighbors=2)
    assert kernel is not None
    expected = [
        [math.exp(-(distance**2) / (2 * width**2)) for distance in row]
        for row in ((0, 1, 2), (1, 0, math.sqrt(3)), (2, math.sqrt(3), 0))
    ]
    torch.testing.assert_close(kernel, torch.tensor(expected))


def test_more_neighbours_than_images_is_the_furthest() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    kernel = affinity(features, neighbors=5)
    assert kernel is not None
    assert kernel[0, 1].item() == pytest.approx(math.exp(-0.5))


def test_the_energy_by_hand() -> None:
    unary, pairwise = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.25]])
    labels = torch.tensor([[0.5, 0.5]])
    expected = 0.5 * (1 - 0.5) + 0.5 * (2 - 0.25) + math.log(0.5)
    assert energy(unary, pairwise, labels).item() == pytest.approx(expected)
    certain = torch.tensor([[1.0, 0.0]])
    assert energy(unary, pairwise, certain).item() == pytest.approx(0.5)


def by_hand(model: nn.Module, batch: Tensor) -> Tensor:
    """The recipe as a loop over images; 60 rounds, no early stop."""
    with torch.no_grad():
        features, logits = model[:-1](batch), model(batch)  # type: ignore[index]
    features = features / features.norm(dim=1, keepdim=True)
    count = len(batch)
    distances = [[float((a - b).norm()) for b in features] for a in features]
    width = sum(sorted(row)[min(5, count) - 1] for row in distances) / count
    unary = -torch.log(logits.softmax(dim=1) + 1e-10)
    labels = (-unary).softmax(dim=1)
    for _ in range(60):
        labels = torch.stack(
            [
                (
                    sum(
                        math.exp(-(distances[i][j] ** 2) / (2 * width**2)) * labels[j]
                        for j in range(count)
                    )
                    - unary[i]
                ).softmax(dim=0)
                for i in range(count)
            ]
        )
    return labels


@pytest.mark.parametrize("size", [2, 4, 9])
def test_a_batch_is_corrected_as_the_recipe_says(size: int) -> None:
    batch = images(size)
    found = adapt(convolutional(), "lame", tolerance=0.0, max_iterations=60)(batch)
    torch.testing.assert_close(found.exp(), by_hand(convolutional(), batch), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(found.softmax(dim=1), found.exp())


def test_one_image_or_identical_ones_keep_the_models_prediction() -> None:
    model, adapted = convolutional(), adapt(convolutional(), "lame")
    for batch in (images(1), images(1).expand(7, -1, -1, -1)):
        with torch.no_grad():
            expected = model(batch).softmax(dim=1)
        torch.testing.assert_close(adapted(batch).softmax(dim=1), expected)


def test_nothing_is_carried_from_batch_to_batch() -> None:
    adapted = adapt(convolutional(), "lame")
    for batch in stream([6, 2, 9]):
        assert torch.equal(adapted(batch), adapt(convolutional(), "lame")(batch))
    assert same(snapshot(adapted.freeze()), snapshot(convolutional()))


class Wrapped(nn.Module):
    """Returns more than its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()

    def forward(self, batch: Tensor) -> dict[str, Tensor]:
        return {"images": batch, "logits": self.body(batch)}


def test_only_the_logits_in_an_output_are_corrected() -> None:
    batch = images(6)
    found = adapt(Wrapped(), "lame")(batch)
    assert torch.equal(found["images"], batch)
    assert torch.equal(found["logits"], adapt(convolutional(), "lame")(batch))


def test_another_layer_can_be_named() -> None:
    batch = images(6)
    usual = adapt(convolutional(), "lame")(batch)
    assert torch.equal(adapt(convolutional(), "lame", features="12")(batch), usual)
    assert torch.equal(adapt(convolutional(), "lame", features="11")(batch), usual)  # dropout, off
    assert not torch.equal(adapt(convolutional(), "lame", features="3")(batch), usual)
    with pytest.raises(OptionError, match='unknown layer "last"'):
        adapt(convolutional(), "lame", features="last")


def test_a_model_without_linear_layer_is_told_how_to_name_one() -> None:
    with on_cpu():
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 5, 1), nn.Flatten()
        )
    with pytest.raises(ModelError, match=r'no Linear layer.*features="4"'):
        adapt(model, "lame")
    assert adapt(model, "lame", features="3")(images(4)).shape == (4, 5)


class Detour(nn.Module):
    """Has a Linear layer that no batch reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.unused = convolutional(), nn.Linear(2, 2)

    def forward(self, batch: Tensor) -> Tensor:
        logits: Tensor = self.body(batch)
        return logits


def test_features_that_are_never_reached_are_an_error() -> None:
    with pytest.raises(ModelError, match=r"went past the layer.*features="):
        adapt(Detour(), "lame")(images(4))
    assert adapt(Detour(), "lame", features="body.12")(images(4)).shape == (4, 5)
