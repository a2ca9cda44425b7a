from __future__ import annotations

import pytest
import torch
from methods._training.plain_training import sar, sure
from methods.method_state import method_state
from subjects import convolutional, images, on_cpu, same, stream
from torch import nn

from realistic_tta import SGD, ModelError, OptionError, adapt
from realistic_tta.methods.registry import preset_options
from realistic_tta.methods.sar import climb, follow, is_in


def test_climb_and_return_on_a_quadratic() -> None:
    """f(w) = w1^2 + 4 w2^2 at (3, 0.5): gradient (6, 4), climbed by 1, gradient there, step back.

    |gradient| = sqrt(52); the climbed gradient is (2, 8) * (3 + 6/sqrt(52), 0.5 + 4/sqrt(52)).
    """
    curvature = torch.tensor([2.0, 8.0], dtype=torch.float64)
    weights = torch.tensor([3.0, 0.5], dtype=torch.float64)
    length = 52**0.5
    climbed = climb(weights, curvature * weights, radius=1.0)
    torch.testing.assert_close(
        climbed, torch.tensor([3 + 6 / length, 0.5 + 4 / length], dtype=torch.float64)
    )
    sgd = SGD(lr=0.1)
    after, _ = sgd.update(weights, curvature * climbed, sgd.start(weights))
    expected = [3 - 0.1 * 2 * (3 + 6 / length), 0.5 - 0.1 * 8 * (0.5 + 4 / length)]
    torch.testing.assert_close(after, torch.tensor(expected, dtype=torch.float64))


def test_without_a_gradient_there_is_no_climb() -> None:
    assert torch.equal(climb(torch.ones(3), torch.zeros(3), 0.05), torch.ones(3))


@pytest.mark.parametrize("recover_below", [0.0, 0.2, 0.5])
def test_a_stream_is_predicted_as_by_a_plain_torch_program(recover_below: float) -> None:
    batches = stream([32, 8, 1, 16, 40, 16, 2])
    expected, done = sar(sure(convolutional()), batches, recover_below)
    assert "step" in done
    assert ("recover" in done) == (recover_below > 0.4)
    adapted = adapt(sure(convolutional()), "sar", recover_below=recover_below)
    for batch, logits in zip(batches, expected, strict=True):
        torch.testing.assert_close(adapted(batch), logits, atol=2e-4, rtol=1e-4)


def test_recovery_restores_weights_optimizer_and_running_loss() -> None:
    adapted = adapt(sure(convolutional()), "sar", recover_below=100.0)
    fresh = method_state(adapted)
    adapted(images(32))
    after = method_state(adapted)
    for name in ("weights", "velocity", "running_loss"):
        assert torch.equal(after[name], fresh[name])
    assert int(after["batches"]) == 1


def test_without_a_reliable_image_there_is_no_step() -> None:
    """Not even one that momentum alone would make."""
    adapted = adapt(sure(convolutional()), "sar", recover_below=0.0)
    adapted(images(32))
    before = method_state(adapted)
    assert before["velocity"].abs().max() > 0
    strict = adapt(sure(convolutional()), "sar", recover_below=0.0, entropy_threshold=0.0)
    strict.load_state_dict(adapted.state_dict())
    strict(images(8, seed=4))
    after = method_state(strict)
    changed = {"batches", "target_mean", "target_variance"}
    assert int(after["batches"]) == 2
    assert same(*({k: v for k, v in s.items() if k not in changed} for s in (before, after)))


def test_the_running_loss_starts_at_its_first_value() -> None:
    first = follow(torch.tensor(torch.inf), torch.tensor(0.5), decay=0.9)
    assert first == 0.5
    assert follow(first, torch.tensor(1.5), decay=0.9) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("layer", "module", "inside"),
    [
        ("layer4.1.bn2", "layer4", True),
        ("model.layer4.0.bn1", "layer4", True),
        ("layer40.bn1", "layer4", False),
        ("blocks.9.norm1", "blocks.9", True),
        ("blocks.1.norm1", "blocks.11", False),
        ("blocks.11.norm1", "blocks.1", False),
        ("norm", "norm", True),
        ("norm.0", "norm", True),
        ("blocks.3.norm", "norm", False),
    ],
)
def test_excluded_modules_are_known_by_whole_names(layer: str, module: str, inside: bool) -> None:
    assert is_in(layer, module) == inside


def late() -> nn.Module:
    """A BatchNorm early, one in what ResNets call their last stage."""
    with on_cpu():
        stages = [
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
            nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)),
        ]
    model = nn.Sequential()
    for name, stage in zip(("layer1", "layer4", "head"), stages, strict=True):
        model.add_module(name, stage)
    return model


def test_the_last_stage_is_not_trained_but_uses_the_batchs_statistics() -> None:
    report = adapt(late(), "sar").report()
    assert report.trained == ("layer1.1.weight", "layer1.1.bias")
    assert [layer.name for layer in report.layers] == ["layer1.1", "layer4.1"]
    assert len(adapt(late(), "sar", exclude=()).report().trained) == 4


def test_nothing_left_to_train_is_an_error_with_a_way_out() -> None:
    model = nn.Sequential()
    model.add_module("layer4", late().get_submodule("layer1"))
    with pytest.raises(ModelError, match=r"all 1 normalization layers.*exclude=\(\)"):
        adapt(model, "sar")
    assert adapt(model, "sar", exclude=()).report().trained


def test_wrong_hyperparameters_raise() -> None:
    with pytest.raises(OptionError, match="exclude is 'layer4'; expected a tuple"):
        adapt(late(), "sar", exclude="layer4")
    with pytest.raises(OptionError, match="radius is -1"):
        adapt(late(), "sar", radius=-1)
    assert preset_options("sar", "imagenet_c") == {"optimizer": SGD(2.5e-4, 0.9)}
