"""flip=True: the average over a horizontal flip, where it keeps the label."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import InputError, ModelError, adapt


def frozen_outputs(adapted: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities of a batch and of its flip by a plain model."""
    with torch.no_grad():
        return adapted(batch).softmax(dim=1), adapted(batch.flip(3)).softmax(dim=1)


def test_the_prediction_is_the_mean_of_both_where_a_flip_keeps_the_label() -> None:
    """Written out image by image, for a model that does not adapt."""
    adapted, model = adapt(convolutional(), "source", flip=True), convolutional()
    agreement, total = [1.0] * 5, [1.0] * 5
    for batch in stream([6, 3, 1]):
        p, q = frozen_outputs(model, batch)
        for image in range(len(batch)):
            for label in range(5):
                total[label] += p[image, label].item()
                agreement[label] += (p[image, label] * q[image, label]).item()
        found = adapted(batch).softmax(dim=1)
        for image in range(len(batch)):
            label = int(p[image].argmax())
            kept = agreement[label] / total[label] > 0.5
            expected = (p[image] + q[image]) / 2 if kept else p[image]
            torch.testing.assert_close(found[image], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ["tema", "realistic", "tent"])
def test_the_method_adapts_to_the_images_themselves_only(method: str) -> None:
    flipped, plain = adapt(convolutional(), method, flip=True), adapt(convolutional(), method)
    for batch in stream([4, 9, 2]):
        flipped(batch)
        plain(batch)
        assert same(snapshot(flipped._innermost), snapshot(plain._innermost))


class Sides(nn.Module):
    """Class 0: bright on the left. Class 1: bright on the right. Class 2: bright in the middle."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.norm = nn.BatchNorm2d(1)

    def forward(self, batch: Tensor) -> Tensor:
        left, middle, right = self.norm(batch).mean(dim=(1, 2)).split(4, dim=1)
        return 8 * torch.stack([left.mean(1), right.mean(1), middle.mean(1)], dim=1)


def sides(labels: list[int]) -> Tensor:
    batch = torch.zeros(len(labels), 1, 4, 12)
    for image, label in enumerate(labels):
        start = {0: 0, 2: 4, 1: 8}[label]
        batch[image, :, :, start : start + 4] = 1
    generator = torch.Generator().manual_seed(0)
    return batch + 0.1 * torch.rand(batch.shape, generator=generator)


def test_classes_that_flip_into_each_other_keep_their_own_prediction() -> None:
    """The third class, which is symmetric, is averaged all the same."""
    adapted, plain = adapt(Sides(), "source", flip=True), Sides().eval()
    labels = [0, 1, 2] * 8
    adapted(sides(labels))
    batch = sides(labels)
    p, q = frozen_outputs(plain, batch)
    found = adapted(batch).softmax(dim=1)
    assert found.argmax(dim=1).tolist() == labels
    asymmetric = torch.tensor([label != 2 for label in labels])
    torch.testing.assert_close(found[asymmetric], p[asymmetric])
    torch.testing.assert_close(found[~asymmetric], (p[~asymmetric] + q[~asymmetric]) / 2)
    assert not torch.allclose(p[~asymmetric], q[~asymmetric], atol=1e-6)


def test_what_a_model_returns_beside_the_logits_is_kept() -> None:
    class WithFeatures(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = convolutional()

        def forward(self, batch: Tensor) -> dict[str, Any]:
            return {"mean": batch.mean(dim=(1, 2, 3)), "logits": self.body(batch), "note": "x"}

    found = adapt(WithFeatures(), "tema", flip=True)(images(4))
    torch.testing.assert_close(found["mean"], images(4).mean(dim=(1, 2, 3)))
    assert found["note"] == "x"
    assert torch.equal(found["logits"], adapt(convolutional(), "tema", flip=True)(images(4)))


def test_input_that_is_no_image_and_output_without_logits_are_named() -> None:
    with on_cpu():
        vectors = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
        maps = nn.Sequential(nn.BatchNorm2d(3))
    with pytest.raises(InputError, match=r"shape \(5, 4\); flip=True needs images"):
        adapt(vectors, "tbn", flip=True)(torch.rand(5, 4))
    adapted = adapt(maps, "tbn", flip=True)
    before = snapshot(adapted)
    with pytest.raises(ModelError, match="expected logits"):
        adapted(images(2))
    assert same(before, snapshot(adapted))


def test_a_probability_of_zero_stays_finite() -> None:
    with on_cpu():
        model = nn.Sequential(nn.Flatten(), nn.Linear(432, 3))
    with torch.no_grad():
        model[1].weight.mul_(1e4)  # type: ignore[operator]
    assert torch.isfinite(adapt(model, "source", flip=True)(images(6))).all()
