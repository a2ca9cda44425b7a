"""The alarm keeps its rate on clean batches, and is raised by fog."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from subjects import convolutional, images, same, snapshot
from torch import Tensor

from realistic_tta import DriftAlarm, InputError, OptionError, adapt
from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.data.corruptions import corrupt
from realistic_tta.models.checkpoints import load_model
from realistic_tta.serving.drift_alarm import p_value


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("clean", [19, 99, 500])
def test_the_rate_is_kept_for_exchangeable_scores(rate: float, clean: int) -> None:
    """Over 4,000 draws of everything; scores of a heavy tail, and with ties."""
    draw = np.random.default_rng(0)
    for scores in (draw.pareto(1, (4000, clean + 1)), draw.integers(0, 30, (4000, clean + 1))):
        below = (scores[:, 1:] >= scores[:, :1]).sum(axis=1)
        p = (1 + below) / (1 + clean)
        assert p[:50].tolist() == [p_value(row[0], list(row[1:])) for row in scores[:50].tolist()]
        alarms = (p <= rate).mean()
        assert alarms <= rate + 4 * np.sqrt(rate * (1 - rate) / 4000)


@pytest.mark.parametrize(
    ("score", "expected"), [(0.5, 1.0), (1.0, 1.0), (1.5, 0.75), (3.0, 0.5), (9.0, 0.25)]
)
def test_p_values_by_hand(score: float, expected: float) -> None:
    assert p_value(score, [1.0, 2.0, 3.0]) == expected


def batches(photographs: np.ndarray, size: int = 8) -> list[Tensor]:
    return list((torch.from_numpy(photographs).permute(0, 3, 1, 2) / 255).split(size))


def test_on_real_photographs_the_rate_is_kept_and_fog_is_noticed() -> None:
    """Calibrated on one part of the sample, tried on another: 100 batches of 8 and 60 of 8."""
    photographs = load_bundled_images().images
    photographs = photographs[np.random.default_rng(0).permutation(len(photographs))]
    clean, others = photographs[:800], photographs[800:1280]
    foggy = corrupt(others[:160], "fog", severity=3, generator=np.random.default_rng(0))
    alarm = DriftAlarm.calibrate(load_model("cifar10"), batches(clean), false_alarm_rate=0.05)
    observed = [alarm.observe(batch) for batch in batches(others)]
    false = sum(each.alarm for each in observed)
    true = sum(alarm.observe(batch).alarm for batch in batches(foggy))
    assert false <= 9  # of 60; 3 are expected, and 9 are three standard deviations above
    assert true >= 18  # of 20
    # Whichever 100 of the 160 clean batches calibrate: on average the rate is kept.
    scores, draw = (
        [*alarm.scores, *(each.divergence for each in observed)],
        np.random.default_rng(1),
    )
    rates = []
    for _ in range(200):
        *clean_scores, new = draw.permutation(scores)[:101].tolist()
        rates.append(p_value(new, clean_scores) <= 0.05)
    assert np.mean(rates) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_an_adapted_model_is_refused_and_observing_changes_nothing() -> None:
    clean = [images(4, seed) for seed in range(19)]
    with pytest.raises(OptionError, match="model is adapted; expected the model as trained"):
        DriftAlarm.calibrate(adapt(convolutional()), clean, false_alarm_rate=0.05)
    model = convolutional()
    before = snapshot(model)
    alarm = DriftAlarm.calibrate(model, clean, false_alarm_rate=0.05)
    again = [alarm.observe(images(4, 50)) for _ in range(2)]
    assert again[0] == again[1]
    assert same(before, snapshot(model))


def test_the_score_is_the_divergence_of_the_inputs_as_trained() -> None:
    """Summed over channels, the two Kullback-Leibler divergences averaged, by torch's own."""
    model, batch = convolutional(), images(6)
    seen: dict[int, Tensor] = {}
    for place in (1, 4, 7):
        model.get_submodule(str(place)).register_forward_pre_hook(
            lambda _, args, place=place: seen.update({place: args[0]})
        )
    with torch.no_grad():
        model(batch)
    total = 0.0
    for place, inputs in seen.items():
        layer: Any = model.get_submodule(str(place))
        source = torch.distributions.Normal(
            layer.running_mean.double(), (layer.running_var.double() + 1e-5).sqrt()
        )
        variance, mean = torch.var_mean(inputs.double(), dim=(0, 2, 3), correction=1)
        target = torch.distributions.Normal(mean, (variance + 1e-5).sqrt())
        both = [
            torch.distributions.kl_divergence(*pair)
            for pair in ((source, target), (target, source))
        ]
        total += float(sum(both).sum()) / 2  # type: ignore[union-attr]
    alarm = DriftAlarm.calibrate(convolutional(), [batch] * 3, false_alarm_rate=0.25)
    assert alarm.observe(batch).divergence == pytest.approx(total, rel=1e-4)


def test_too_few_clean_batches_are_refused() -> None:
    clean = [images(2, seed) for seed in range(10)]
    with pytest.raises(OptionError, match=r"got 10 clean batches; .* 0.01 needs 99"):
        DriftAlarm.calibrate(convolutional(), clean)
    with pytest.raises(OptionError, match="false_alarm_rate"):
        DriftAlarm.calibrate(convolutional(), clean, false_alarm_rate=0)


def test_another_batch_size_is_refused() -> None:
    alarm = DriftAlarm.calibrate(convolutional(), [images(2)] * 9, false_alarm_rate=0.1)
    with pytest.raises(InputError, match="a batch of 3 images, expected 2"):
        alarm.observe(images(3))
