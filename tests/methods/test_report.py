from __future__ import annotations

import pytest
import torch
from subjects import convolutional, images, on_cpu, randomize
from torch import nn

from realistic_tta import METHODS, adapt


def network() -> nn.Module:
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


def test_report_before_and_after_a_batch() -> None:
    adapted = adapt(network(), "rectified_tema")
    report = adapted.report()
    assert [(x.name, x.kind, x.channels, x.divergence) for x in report.layers] == [
        ("1", "BatchNorm2d", 4, None),
        ("3", "BatchNorm2d", 4, None),
    ]
    assert [(x.name, x.kind) for x in report.left_alone] == [("2", "GroupNorm")]
    adapted(images(4))
    report = adapted.report()
    assert report.batches == 1
    assert sorted(x.source_weight or 0 for x in report.layers) == pytest.approx([0, 0.5])
    assert all(x.divergence is not None and x.divergence > 0 for x in report.layers)


def test_report_reads_as_a_table() -> None:
    adapted = adapt(network(), "rectified_tema")
    adapted(images(4))
    lines = str(adapted.report()).splitlines()
    assert lines[0] == "rectified_tema: 2 BatchNorm layers adapted, 1 batch seen"
    assert lines[1].split() == ["layer", "kind", "channels", "divergence", "source", "weight"]
    assert lines[2].split()[:3] == ["1", "BatchNorm2d", "4"]
    assert lines[4] == "left alone: 1"
    assert "GroupNorm" in lines[5]


def test_source_reports_every_layer_as_left_alone() -> None:
    report = adapt(network(), "source").report()
    assert not report.layers
    assert [x.kind for x in report.left_alone] == ["BatchNorm2d", "BatchNorm2d", "GroupNorm"]


def test_divergence_is_that_of_the_statistics_in_use() -> None:
    """A stream like the training data diverges little; a shifted one much.

    Not so for methods that measure on views, which are other images.
    """
    with on_cpu():
        network = nn.Sequential(
            nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10)
        )
    generator = torch.Generator().manual_seed(0)
    alike = torch.randn(200, 3, 8, 8, generator=generator)
    for method in METHODS:
        near, far = (adapt(network, method) for _ in range(2))
        if not near.report().layers or method in ("cotta", "adacontrast"):
            continue
        near(alike)
        far(alike * 3 + 2)
        close, distant = (adapted.report().layers[0].divergence for adapted in (near, far))
        assert close is not None
        assert distant is not None
        assert close < 0.01
        assert distant > 1


def test_the_report_of_a_root_layer_has_a_name() -> None:
    assert "(root)" in str(adapt(nn.BatchNorm2d(3), "tbn").report())
    assert str(adapt(convolutional(), "tbn").report()).startswith("tbn: 3 BatchNorm layers")
