from __future__ import annotations

import pytest
import torch
from subjects import convolutional, images, on_cpu, randomize
from torch import Tensor, nn

from realistic_tta import METHODS, adapt


def mixed_model() -> nn.Module:
    with on_cpu():
        return randomize(
            nn.Sequential(
                nn.Conv2d(3, 4, 1),
                nn.BatchNorm2d(4),
                nn.GroupNorm(2, 4),
                nn.BatchNorm2d(4, affine=False),
                nn.Flatten(),
                nn.Linear(576, 3),
            )
        )


def test_figures_are_known_after_a_batch() -> None:
    adapted = adapt(mixed_model(), "rectified_tema", guard=True)
    report = adapted.report()
    assert [(x.name, x.layer_type, x.channels, x.divergence) for x in report.layers] == [
        ("1", "BatchNorm2d", 4, None),
        ("3", "BatchNorm2d", 4, None),
    ]
    assert [(x.name, x.layer_type) for x in report.skipped_layers] == [("2", "GroupNorm")]
    adapted(images(4))
    report = adapted.report()
    assert (report.method, report.batches, report.trained) == ("rectified_tema", 1, ())
    assert sorted(x.source_weight or 0 for x in report.layers) == pytest.approx([0, 0.5])
    assert all(x.divergence is not None and x.divergence > 0 for x in report.layers)


def test_a_report_prints_as_a_table() -> None:
    adapted = adapt(mixed_model(), "rectified_tema")
    adapted(images(4))
    lines = str(adapted.report()).splitlines()
    assert lines[0] == "rectified_tema: 2 BatchNorm layers adapted, 1 batch seen"
    assert lines[1].split() == ["layer", "type", "channels", "divergence", "source", "weight"]
    assert lines[2].split()[:3] == ["1", "BatchNorm2d", "4"]
    assert lines[4] == "skipped: 1"
    assert "GroupNorm" in lines[5]


def test_trained_parameters_are_listed_by_layer() -> None:
    report = adapt(mixed_model(), "tent").report()
    assert report.trained == ("1.weight", "1.bias", "2.weight", "2.bias")
    assert not report.skipped_layers  # the GroupNorm is trained
    assert "trained: 4 parameters\n  1  weight, bias\n  2  weight, bias" in str(report)


def test_source_and_lame_skip_every_layer() -> None:
    for method in ("source", "lame"):
        report = adapt(mixed_model(), method).report()
        assert not report.layers
        types = [x.layer_type for x in report.skipped_layers]
        assert types == ["BatchNorm2d", "BatchNorm2d", "GroupNorm"]
        assert all(x.reason.startswith(method) for x in report.skipped_layers[:2])


class Branch(nn.Module):
    """Reaches its second BatchNorm only if it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.first, self.second = (randomize(nn.BatchNorm2d(3), seed) for seed in (0, 1))
            self.last = nn.Linear(3, 4)

    def forward(self, batch: Tensor, deep: bool = True) -> Tensor:
        batch = self.first(batch)
        logits: Tensor = self.last((self.second(batch) if deep else batch).mean(dim=(2, 3)))
        return logits


@pytest.mark.parametrize(
    "method", ["tbn", "alpha_bn", "tema", "rectified_tema", "realistic", "tent"]
)
def test_a_layer_that_no_batch_has_reached_has_no_figures(method: str) -> None:
    adapted = adapt(Branch(), method)
    adapted(images(4), deep=False)
    reached, not_reached = adapted.report().layers
    assert reached.source_weight is not None
    assert (not_reached.source_weight, not_reached.divergence) == (None, None)
    adapted(images(4, seed=1))
    assert all(layer.source_weight is not None for layer in adapted.report().layers)


@pytest.mark.parametrize("method", METHODS)
def test_divergence_is_small_on_data_like_the_source_and_large_on_other(method: str) -> None:
    """Methods that measure on augmented views see other images."""
    with on_cpu():
        model = nn.Sequential(
            nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10)
        )
    generator = torch.Generator().manual_seed(0)
    alike = torch.randn(200, 3, 8, 8, generator=generator)
    near, far = (adapt(model, method) for _ in range(2))
    if not near.report().layers or method in ("cotta", "adacontrast"):
        return
    near(alike)
    far(alike * 3 + 2)
    close, distant = (adapted.report().layers[0].divergence for adapted in (near, far))
    assert close is not None
    assert distant is not None
    assert close < 0.01
    assert distant > 1


def test_a_root_layer_has_a_name() -> None:
    assert "(root)" in str(adapt(nn.BatchNorm2d(3), "tbn").report())
    assert str(adapt(convolutional(), "tbn").report()).startswith("tbn: 3 BatchNorm layers")
