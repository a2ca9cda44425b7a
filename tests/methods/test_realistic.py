from __future__ import annotations

from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, randomize, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import AdaptedModel, SettingError, adapt
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.functional.arrays import as_tensor, at_hand
from realistic_tta.functional.label_order import STAYS
from realistic_tta.functional.memories import Weights
from realistic_tta.methods.realistic import Realistic
from realistic_tta.models.checkpoints import load_model


def first_layer() -> nn.Module:
    """A BatchNorm that sees the images themselves, so that its statistics are known."""
    with on_cpu():
        return randomize(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(432, 5)))


def make(**settings: object) -> Realistic:
    adapted = adapt(first_layer(), "realistic", **settings)  # type: ignore[arg-type]
    assert isinstance(adapted, Realistic)
    return adapted


# Nothing is explained: the shortest memory is used, and all that came by is in it.
ALONE: dict[str, Any] = {"tolerance": 0.0, "noise": 0.0, "source_share": 0.0, "changes": False}


def moments_of(shown: Tensor, adapted: Realistic) -> Tensor:
    """Brute force: of all values, in the source's units."""
    variance = adapted.source_variance.double() + 1e-5
    distance = shown.double() - adapted.source_mean.double().view(1, 3, 1, 1)
    first = distance.mean(dim=(0, 2, 3)) / variance.sqrt()
    square = distance.square().mean(dim=(0, 2, 3)) - adapted.source_variance
    return torch.cat((first, square / (variance * 2**0.5)))


@pytest.mark.parametrize("sizes", [[12], [1] * 12, [5, 1, 6], [3, 3, 3, 3]], ids=str)
def test_at_first_the_memory_is_the_plain_mean_of_all_images(sizes: list[int]) -> None:
    """And its variance the pooled one, whatever the batches: total variance and warm start."""
    shown = images(12)
    adapted = make(source_batch_size=10**7, **ALONE)
    for batch in shown.split(sizes):
        adapted(batch)
    torch.testing.assert_close(
        adapted.memories[0].double(), moments_of(shown, adapted), atol=1e-5, rtol=1e-4
    )
    variance, mean = torch.var_mean(shown, dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(adapted.target_mean, mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(adapted.target_variance, variance, atol=1e-5, rtol=1e-3)


def test_without_total_variance_it_is_the_mean_of_the_batches_variances() -> None:
    shown = images(12)
    adapted = make(source_batch_size=10**7, total_variance=False, **ALONE)
    for batch in shown.split(1):
        adapted(batch)
    expected = shown.var(dim=(2, 3), correction=0).mean(dim=0)
    torch.testing.assert_close(adapted.target_variance, expected, atol=1e-5, rtol=1e-3)


def test_without_a_warm_start_the_source_weighs_what_the_decay_leaves() -> None:
    batch = images(4)
    adapted = make(several_memories=False, warm_start=False, source_batch_size=8, **ALONE)
    adapted(batch)
    left = 0.1 ** (4 / 8)
    expected = (1 - left) * moments_of(batch, adapted)  # the source's own are 0
    torch.testing.assert_close(adapted.memories[0].double(), expected, atol=1e-5, rtol=1e-4)


def like_the_source(adapted: Realistic, count: int, seed: int = 0) -> Tensor:
    """Images of the source's own mean and variance."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, 3, 12, 12, generator=generator)
    deviation = adapted.source_variance.sqrt().view(1, 3, 1, 1)
    return noise * deviation + adapted.source_mean.view(1, 3, 1, 1)


@pytest.mark.parametrize("size", [1, 16, 64])
def test_where_nothing_has_shifted_the_source_is_kept(size: int) -> None:
    adapted = make()
    for seed in range(64 // size):
        adapted(like_the_source(adapted, size, seed))
    assert adapted.source_weight.item() > 0.99
    torch.testing.assert_close(adapted.target_mean, adapted.source_mean, atol=1e-3, rtol=0)


@pytest.mark.parametrize("size", [1, 16, 64])
def test_where_much_has_shifted_the_source_weighs_what_it_must(size: int) -> None:
    adapted = make()
    for seed in range(64 // size):
        adapted(like_the_source(adapted, size, seed) * 3 + 5)
    assert adapted.source_weight.item() == pytest.approx(0.5, abs=0.01)
    expected = adapted.source_mean * 2 + 2.5  # half of the way
    torch.testing.assert_close(adapted.target_mean, expected, atol=0.1, rtol=0.05)
    variance = adapted.source_variance
    poured = variance * 5 + (adapted.source_mean * 2 + 5).square() / 4  # the paper's Eq. 7
    torch.testing.assert_close(adapted.target_variance, poured, atol=0.2, rtol=0.1)


ANY_ORDER, LONG_RUNS = [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("ways", "label_runs", "times"),
    [(ANY_ORDER, True, 1), (ANY_ORDER, False, 1), (LONG_RUNS, True, 2), (LONG_RUNS, False, 21)],
)
def test_what_a_training_batch_had_by_chance_is_no_reason_to_doubt(
    ways: list[float], label_runs: bool, times: int
) -> None:
    """The noise of so many images, more often where labels come in runs, less a training batch's.

    Where each image is answered on its own, a run of 20 counts as one.
    """
    adapted = make(source_batch_size=32, label_runs=label_runs)
    expected = [max(0.0, times / images - 1 / 32) for images in (8, 32, 64)]
    adapted.order_ways.copy_(torch.tensor(ways))
    held = torch.tensor([[8.0, 32.0, 64.0]])
    doubtful = adapted._doubtful(Weights(at_hand(held), at_hand(held)))
    torch.testing.assert_close(as_tensor(doubtful), torch.tensor([expected]))


def test_a_sudden_change_is_followed_at_once() -> None:
    """One batch after the change the mean has arrived; with one memory it is on the way."""
    arrived = {}
    for several in (True, False):
        adapted = make(several_memories=several, source_share=0.0, changes=False)
        for seed in range(20):
            adapted(like_the_source(adapted, 16, seed) + 4)
        adapted(like_the_source(adapted, 16, seed=99) - 4)
        way = (adapted.target_mean - (adapted.source_mean + 4)) / -8
        arrived[several] = way.mean().item()
    assert arrived[True] > 0.8
    assert arrived[False] < 0.5


def camera(count: int, level: float, noise: float, seed: int) -> Tensor:
    """Pictures of a level of their own in every quarter, under one noise."""
    generator = torch.Generator().manual_seed(seed)
    shown = torch.randn(count, 3, 2, 2, generator=generator).repeat_interleave(6, 2)
    shown = shown.repeat_interleave(6, 3)
    return shown + level + noise * torch.randn(count, 3, 12, 12, generator=generator)


@pytest.mark.parametrize(("size", "batches"), [(1, 3), (8, 1)])
def test_what_came_before_a_change_does_not_count(size: int, batches: int) -> None:
    """After three images, or one batch, the variance has arrived; without it, it is on the way."""
    arrived = {}
    for changes in (True, False):
        adapted = make(changes=changes, source_share=0.0, tolerance=0.0)
        for seed in range(64 // size):
            adapted(camera(size, 0.0, 0.2, seed))
        for seed in range(100, 100 + batches):
            adapted(camera(size, 0.0, 3.0, seed))
        arrived[changes] = (adapted.target_variance.mean().item() - 1) / 9
    assert arrived[True] > 0.9
    assert arrived[False] < 0.75


def test_where_labels_come_in_long_runs_a_change_is_believed_less() -> None:
    """For a new class looks like one: a part of what came before counts all the same."""
    arrived = []
    for ways in (ANY_ORDER, LONG_RUNS):
        adapted = make(source_share=0.0, tolerance=0.0, several_memories=False)
        for seed in range(20):
            adapted(camera(8, 0.0, 0.2, seed))
        adapted.order_ways.copy_(torch.tensor(ways))
        adapted(camera(8, 0.0, 3.0, seed=100))
        arrived.append((adapted.target_variance.mean().item() - 1) / 9)
    assert arrived[0] > 0.9
    assert 0.1 < arrived[1] < 0.6


def test_what_a_fault_has_left_is_forgotten_though_it_looks_like_a_run() -> None:
    """For a while some pictures are a thousand times as bright, and every answer is the same."""
    sample = load_sample()
    pictures = torch.from_numpy(sample.images[:800]).permute(0, 3, 1, 2).float().div(255)
    labels = torch.from_numpy(sample.labels[:800])
    adapted = adapt(load_model("cifar10"))
    wrong = []
    for place, batch in enumerate(pictures.split(16)):
        batch[0] *= 1000.0 if 10 <= place < 30 and place % 2 else 1.0
        wrong.append(adapted(batch).argmax(dim=1) != labels[16 * place :][:16])
    errors = torch.stack(wrong).float().mean(dim=1)
    assert errors[10:30].mean() > 0.6
    assert errors[-10:].mean() < 0.2


def test_without_a_change_it_is_the_same_as_without_looking() -> None:
    """Once the stream is known a little; at first nobody can be so sure."""
    looking, blind = make(), make(changes=False)
    for seed in range(60):
        batch = camera(4, 1.0, 0.5, seed)
        found, expected = looking(batch), blind(batch)
        if seed > 20:
            torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def test_images_too_small_to_have_parts_are_not_looked_at() -> None:
    network = nn.Sequential(nn.Flatten(), randomize(nn.BatchNorm1d(432)), nn.Linear(432, 5))
    looking, blind = (adapt(network, "realistic", changes=changes) for changes in (True, False))
    for batch in (*images(24).split(4), *(9 * images(24)).split(4)):
        torch.testing.assert_close(looking(batch), blind(batch), atol=1e-5, rtol=1e-5)


def test_a_first_layer_of_many_channels_is_looked_at_in_part() -> None:
    adapted = adapt(nn.Sequential(randomize(nn.BatchNorm2d(1000))), classes=10)
    assert adapted.get_buffer("course_content").shape == (48, 48)
    adapted(torch.randn(2, 1000, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert adapted.get_buffer("course_images")[0] == 2


def test_a_stream_that_stays_is_averaged_over_the_long_memory() -> None:
    """Between batches of one domain the statistics move far less than the batches themselves."""
    adapted = make()
    used, own = [], []
    for seed in range(40):
        level = torch.randn(16, 3, 1, 1, generator=torch.Generator().manual_seed(seed))
        batch = like_the_source(adapted, 16, seed) + 4 + level
        adapted(batch)
        used.append(adapted.target_mean.clone())
        own.append(batch.mean(dim=(0, 2, 3)))
    moved, differed = (torch.stack(each[20:]).std(dim=0).mean() for each in (used, own))
    assert moved < 0.25 * differed


@pytest.mark.parametrize("piece", [None, "total_variance", "several_memories", "lean_on_source"])
def test_tensors_that_are_not_at_hand_give_the_same(
    piece: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a device: none of the numbers is NumPy's or Python's."""
    settings: dict[str, Any] = {} if piece is None else {piece: False}
    batches = [*stream([3, 1, 2, 5]), *(3 * batch for batch in stream([4, 1]))]
    here = adapt(convolutional(), "realistic", **settings)
    expected = [here(batch) for batch in batches]
    for module in ("arrays", "leaning"):
        monkeypatch.setattr(f"realistic_tta.functional.{module}.is_at_hand", lambda _: False)
    there = adapt(convolutional(), "realistic", **settings)
    for batch, logits in zip(batches, expected, strict=True):
        torch.testing.assert_close(there(batch), logits, atol=1e-4, rtol=1e-4)


def test_autocast_leaves_the_memories_as_they_are() -> None:
    plain, cast = make(), make()
    for batch in images(12).split(4):
        plain(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast(batch)
    assert torch.equal(plain.memories, cast.memories)
    assert torch.equal(plain.target_variance, cast.target_variance)


def test_the_memory_for_classes_is_a_number_a_class_and_stay() -> None:
    adapted = adapt(convolutional(classes=1000), "realistic")
    sizes = {name: each.numel() for name, each in adapted.named_buffers() if "order_" in name}
    assert sizes.pop("order_belief") == len(STAYS) * 1000
    assert sizes.pop("order_usual") == 1000
    assert sum(sizes.values()) == 1 + len(STAYS) + 1


class Unclear(nn.Module):
    """Returns a map, not logits."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = randomize(nn.BatchNorm2d(3))

    def forward(self, batch: Tensor) -> Tensor:
        normalized: Tensor = self.norm(batch)
        return normalized


def test_a_network_without_logits_is_adapted_without_classes() -> None:
    adapted = adapt(Unclear(), "realistic", classes=5)
    outputs = adapted(images(4))
    assert outputs.shape == (4, 3, 12, 12)
    assert adapted.get_buffer("order_usual").tolist() == pytest.approx([0.2] * 5)


class Twice(nn.Module):
    """One BatchNorm layer used on the whole image and on a half."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = randomize(nn.BatchNorm2d(3))
        self.last = nn.Linear(3, 4)

    def forward(self, batch: Tensor) -> Tensor:
        whole, half = self.norm(batch), self.norm(batch[..., :6])
        logits: Tensor = self.last(whole.mean(dim=(2, 3)) + half.mean(dim=(2, 3)))
        return logits


def test_a_layer_used_twice_remembers_all_values_once() -> None:
    adapted = adapt(Twice(), "realistic", **ALONE)
    batch = images(6)
    adapted(batch)
    values = torch.cat([batch.flatten(2), batch[..., :6].flatten(2)], dim=2)
    variance, mean = torch.var_mean(values, dim=(0, 2), correction=0)
    torch.testing.assert_close(adapted.get_buffer("target_mean"), mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        adapted.get_buffer("target_variance"), variance, atol=1e-5, rtol=1e-3
    )


class Branch(nn.Module):
    """Reaches its second layer only when told."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (randomize(nn.BatchNorm2d(3), seed) for seed in (0, 1))
        self.last = nn.Linear(3, 4)

    def forward(self, batch: Tensor, deep: bool = True) -> Tensor:
        batch = self.first(batch)
        logits: Tensor = self.last((self.second(batch) if deep else batch).mean(dim=(2, 3)))
        return logits


def test_a_layer_that_was_not_reached_starts_warm_when_it_is() -> None:
    adapted = adapt(Branch(), "realistic", **ALONE)
    adapted(images(4), deep=False)
    assert adapted.get_buffer("weight")[1].sum() == 0
    assert adapted.report().layers[1].source_weight is None
    adapted(images(4, seed=1))
    assert adapted.get_buffer("weight")[1].tolist() == pytest.approx(add_up(adapted, 4), rel=1e-5)


def add_up(adapted: AdaptedModel, images_seen: int) -> list[float]:
    """Sum of the decays of so many images, in each memory."""
    decay = adapted.get_buffer("rate").exp().tolist()
    return [sum(each**age for age in range(images_seen)) for each in decay]


PIECES = [
    "total_variance",
    "warm_start",
    "several_memories",
    "lean_on_source",
    "changes",
]


@pytest.mark.parametrize("piece", PIECES)
def test_each_piece_can_be_left_out_and_makes_a_difference(piece: str) -> None:
    whole = adapt(convolutional(), "realistic")
    without = adapt(convolutional(), "realistic", **{piece: False})  # type: ignore[arg-type]
    fresh = snapshot(without)
    batches = [*stream([3, 3, 1, 2]), *[images(4, seed=5) * 3] * 3]
    first = [without(batch) for batch in batches]
    assert any(not torch.equal(a, whole(batch)) for a, batch in zip(first, batches, strict=True))
    assert all(torch.isfinite(logits).all() for logits in first)
    without.reset()
    assert same(fresh, snapshot(without))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": -1.0}, "noise is -1.0; expected a number of 0 or more"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"source_share": 1.5}, "source_share is 1.5"),
        ({"source_batch_size": 0}, "source_batch_size is 0"),
        ({"momentum": 0.1}, "realistic takes no momentum"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        adapt(convolutional(), "realistic", **settings)  # type: ignore[arg-type]


class Told(nn.Module):
    """A network that says what the first pixel of an image tells it, and looks at nothing else."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.norm = nn.BatchNorm2d(10)

    def forward(self, shown: Tensor) -> dict[str, Tensor]:
        self.norm(shown)
        return {"logits": shown[:, :, 0, 0], "features": shown.mean(dim=(2, 3)).double()}


def told(labels: Tensor, seed: int = 0) -> Tensor:
    """Images that tell the label of three in four, the fourth a label at random, less surely."""
    generator = torch.Generator().manual_seed(seed)
    other = torch.randint(10, labels.shape, generator=generator)
    wrong = torch.rand(labels.shape, generator=generator) < 0.25
    shown = 0.1 * torch.randn(len(labels), 10, 4, 4, generator=generator)
    names = nn.functional.one_hot(torch.where(wrong, other, labels), 10)
    shown[:, :, 0, 0] += names * torch.where(wrong, 3.0, 4.0)[:, None]
    return shown


def answered_by(shown: Tensor, size: int, **settings: object) -> Tensor:
    adapted = adapt(Told().eval(), "realistic", classes=10, **settings)  # type: ignore[arg-type]
    return torch.cat([adapted(batch)["logits"] for batch in shown.split(size)])


@pytest.mark.parametrize("size", [1, 16])
def test_in_runs_an_image_is_answered_by_those_around_it(size: int) -> None:
    labels = torch.arange(10).repeat_interleave(20).repeat(2)
    shown = told(labels)

    def wrong(**settings: object) -> float:
        return (answered_by(shown, size, **settings).argmax(dim=1) != labels).float().mean().item()

    assert wrong(label_runs=False) > 0.15
    assert wrong() < (0.12 if size == 1 else 0.08)


@pytest.mark.parametrize("size", [1, 16, 64])
def test_in_any_order_the_logits_are_the_networks_own(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shown = told(torch.randint(10, (320,), generator=generator))
    assert answered_by(shown, size).equal(shown[:, :, 0, 0])


def test_only_the_logits_are_exchanged() -> None:
    """What else the network returns is handed on as it is, and their type is kept."""
    labels = torch.arange(10).repeat_interleave(20)
    shown = told(labels).half()
    adapted = adapt(Told().eval().half(), "realistic", classes=10)
    for batch in shown.split(16):
        outputs = adapted(batch)
    assert outputs["logits"].dtype is torch.float16
    assert not outputs["logits"].equal(batch[:, :, 0, 0])
    assert outputs["features"].equal(batch.mean(dim=(2, 3)).double())


def test_rows_that_are_not_one_an_image_are_left_as_they_are() -> None:
    class Twice(Told):
        def forward(self, shown: Tensor) -> dict[str, Tensor]:
            return {"logits": super().forward(shown)["logits"].repeat(2, 1)}

    adapted = adapt(Twice().eval(), "realistic", classes=10)
    assert isinstance(adapted, Realistic)
    shown = told(torch.arange(10).repeat_interleave(20))
    before = adapted.order_ways.clone()
    for batch in shown.split(16):
        assert adapted(batch)["logits"].equal(batch[:, :, 0, 0].repeat(2, 1))
    assert adapted.order_ways.equal(before)
