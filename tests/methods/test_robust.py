"""robust=True: no image, however far from the source, drags the statistics away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, randomize, same, snapshot, stream
from torch import Tensor, nn

import realistic_tta
from realistic_tta import AdaptedModel, ModelError, SettingError, adapt
from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.label_order import STAYS
from realistic_tta.layers.robust_rules import (
    MixedWithSource,
    RobustBatchStatistics,
    RobustMovingAverage,
)
from realistic_tta.layers.statistics_rules import (
    BatchStatistics,
    MovingAverage,
    RectifiedMovingAverage,
    StatisticsRule,
)
from realistic_tta.methods.realistic import Realistic
from realistic_tta.methods.replayable import why_not

ROBUST = ("tbn", "tema", "rectified_tema", "realistic")


def near_the_source() -> nn.Module:
    """A network whose source statistics are those of our images."""
    network = convolutional()
    network.train()
    with torch.no_grad():
        for seed in range(60):
            network(images(64, seed))
    return network.eval()


def moved(one: AdaptedModel, other: AdaptedModel) -> float:
    """The largest difference of two networks' target statistics, or of realistic's memories.

    What realistic makes of its memories stays near the source at first: it takes what one hostile
    image does for noise.
    """
    names = ["memories"] if one.name == "realistic" else ["target_mean", "target_variance"]
    gaps = [one.get_buffer(name) - other.get_buffer(name) for name in names]
    return max(float(gap.abs().max()) for gap in gaps)


def check(found: ChannelStatistics, expected: ChannelStatistics) -> None:
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [[4], [3, 5]], ids=str)
def test_its_rules_are_the_plain_ones_where_every_image_is_trusted(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a layer that is used twice in a pass."""
    monkeypatch.setattr("realistic_tta.functional.trust.trust", lambda far, _: torch.ones_like(far))
    source = ChannelStatistics(torch.tensor([0.5, -1.0]), torch.tensor([2.0, 0.5]))
    before, weight = ChannelStatistics(torch.zeros(2), torch.ones(2)), torch.tensor(0.3)

    def copied() -> ChannelStatistics:
        return ChannelStatistics(*(each.clone() for each in before))

    pairs: list[tuple[StatisticsRule, StatisticsRule]] = [
        (RobustBatchStatistics(source), BatchStatistics()),
        (
            RobustMovingAverage(copied(), before, 0.25, source),
            MovingAverage(copied(), before, 0.25),
        ),
        (
            MixedWithSource(RobustMovingAverage(copied(), before, 0.1, source), source, weight),
            RectifiedMovingAverage(copied(), before, 0.1, source, weight),
        ),
    ]
    generator = torch.Generator().manual_seed(0)
    for robust, plain in pairs:
        assert robust.target is None
        for size in sizes:
            inputs = torch.randn(size, 2, 3, generator=generator) + 1
            check(robust.statistics(inputs), plain.statistics(inputs))
        assert robust.target is not None
        assert plain.target is not None
        check(robust.target, plain.target)


@pytest.mark.parametrize("method", ROBUST)
def test_on_images_like_those_of_training_nothing_changes(method: str) -> None:
    network = near_the_source()
    plain, robust = adapt(network, method), adapt(network, method, robust=True)
    for batch in stream([8, 1, 16]):
        torch.testing.assert_close(robust(batch), plain(batch), rtol=1e-3, atol=1e-4)
    assert moved(plain, robust) < 1e-3


def moved_by_one(method: str, scale: float, *, robust: bool) -> float:
    """How far one image of another scale, among 16 of the second batch, moves the statistics."""
    network = near_the_source()
    usual, hostile = (adapt(network, method, robust=robust) for _ in range(2))
    batch = images(16, seed=7)
    for adapted in (usual, hostile):
        adapted(images(16, seed=1))
    usual(batch)
    batch[3] *= scale
    hostile(batch)
    return moved(usual, hostile)


@pytest.mark.parametrize("method", ROBUST)
def test_one_hostile_image_moves_the_statistics_hardly_where_it_moves_the_plain_ones_far(
    method: str,
) -> None:
    assert moved_by_one(method, 1e3, robust=False) > 100
    assert moved_by_one(method, 1e3, robust=True) < 0.5
    assert moved_by_one(method, 1e15, robust=True) < 0.5


@pytest.mark.parametrize("method", ROBUST)
def test_the_images_beside_a_hostile_one_are_predicted_nearly_as_without_it(method: str) -> None:
    network = near_the_source()
    batch = images(32, seed=7)
    hostile = batch.clone()
    hostile[3] *= 1e4
    good = torch.arange(32) != 3
    settings: dict[str, Any] = {"momentum": 1.0, "start": "source"} if "tema" in method else {}
    if method == "realistic":
        settings = {"label_runs": False}  # all images are of one class, which is another test

    def predicted(shown: Tensor, *, robust: bool = False) -> Tensor:
        adapted = adapt(network, method, robust=robust, **settings)
        logits: Tensor = adapted(shown)[good]
        return logits.softmax(dim=1)

    expected = predicted(batch)
    assert (predicted(hostile, robust=True) - expected).abs().max() < 0.03
    if method != "realistic":  # it takes the gap for noise, and stays with the source
        assert (predicted(hostile) - expected).abs().max() > 0.1


@pytest.mark.parametrize("method", ROBUST)
def test_squares_that_overflow_leave_a_finite_state(method: str) -> None:
    adapted = adapt(near_the_source(), method, robust=True)
    batch = images(8)
    batch[0] = 1e25
    logits = adapted(batch)
    assert torch.isfinite(logits[1:]).all()
    assert all(torch.isfinite(each).all() for each in adapted.state_dict().values())


@pytest.mark.parametrize("method", ROBUST)
def test_samples_with_nan_are_left_out_as_without_it(method: str) -> None:
    adapted, alone = (adapt(convolutional(), method, robust=True) for _ in range(2))
    batch = images(4)
    batch[2, 0, 0, 0] = torch.nan
    good = torch.tensor([True, True, False, True])
    assert torch.equal(adapted(batch)[good], alone(images(4)[good]))
    assert same(snapshot(adapted), snapshot(alone))
    assert adapted.health().excluded == 1


@pytest.mark.parametrize("method", ROBUST)
def test_a_saved_state_goes_on_robust(method: str, tmp_path: Path) -> None:
    adapted = adapt(convolutional(), method, robust=True)
    adapted(images(4))
    adapted.save(tmp_path / "state")
    loaded = realistic_tta.load(tmp_path / "state", convolutional())
    assert loaded.settings.robust
    assert torch.equal(loaded(images(4, seed=1)), adapted(images(4, seed=1)))


@pytest.mark.parametrize("method", ROBUST)
def test_it_compiles_to_one_graph(method: str) -> None:
    torch._dynamo.reset()
    eager, adapted = (adapt(convolutional(), method, robust=True) for _ in range(2))
    compiled = torch.compile(adapted, backend="aot_eager", fullgraph=True)
    for batch in stream([6, 6, 6]):
        torch.testing.assert_close(compiled(batch), eager(batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ROBUST)
def test_what_is_no_switch_is_refused(method: str) -> None:
    with pytest.raises(SettingError, match=r"robust is 3.0; expected True or False"):
        adapt(convolutional(), method, robust=3.0)


def test_methods_without_it_refuse_it() -> None:
    with pytest.raises(SettingError, match='alpha_bn has no setting "robust"; tbn, tema'):
        adapt(convolutional(), "alpha_bn", robust=True)


def test_realistic_needs_total_variances_for_it() -> None:
    with pytest.raises(SettingError, match="needs total_variance=True"):
        adapt(convolutional(), "realistic", robust=True, total_variance=False)


def without_source() -> nn.Module:
    with on_cpu():
        layers = [nn.Linear(4, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3)]
        return randomize(nn.Sequential(*layers))


@pytest.mark.parametrize("method", ["tbn", "tema"])
def test_without_source_statistics_it_is_refused_and_the_plain_method_is_not(method: str) -> None:
    adapt(without_source(), method)
    with pytest.raises(ModelError, match=r"robust=True needs; use .*, without robust"):
        adapt(without_source(), method, robust=True)


def test_it_is_run_batch_by_batch_where_others_are_replayed() -> None:
    batch: Tensor = images(4)
    assert why_not(adapt(convolutional(), "tema"), batch) is None
    reason = why_not(adapt(convolutional(), "tema", robust=True), batch)
    assert reason is not None
    assert "robust" in reason


@pytest.mark.parametrize("method", ["tbn", "tema", "rectified_tema"])
def test_replicas_are_refused_with_it(method: str) -> None:
    class Group:
        """Stands for processes that would share."""

    adapted = adapt(convolutional(), method, robust=True)
    with pytest.raises(SettingError, match="robust=True and sync cannot go together"):
        adapted.share_with(Group())  # type: ignore[arg-type]


def test_a_hostile_image_tells_nothing_of_the_labels_around_it() -> None:
    """It is as if it had not been seen: what was believed of the label before goes on."""
    adapted = adapt(near_the_source(), "realistic", robust=True)
    assert isinstance(adapted, Realistic)
    adapted(images(16, seed=1))
    before = adapted.order_belief.clone()
    adapted(images(1, seed=7) * 1e4)
    stays = torch.tensor(STAYS)[:, None]
    expected = stays * before + (1 - stays) / before.shape[1]
    torch.testing.assert_close(adapted.order_belief, expected, atol=1e-4, rtol=1e-3)
