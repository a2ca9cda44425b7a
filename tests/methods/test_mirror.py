"""The second look in the mirror, on real photographs and digits and on networks that refuse it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from subjects import convolutional, images, on_cpu, randomize, same, snapshot
from torch import Tensor, nn

from realistic_tta import ForwardError, InputError, SettingError, adapt
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.corruptions.catalogue import corrupt
from realistic_tta.functional.arrays import as_tensor
from realistic_tta.functional.likeness import Likeness, compare, second_look
from realistic_tta.methods.realistic import Realistic
from realistic_tta.models.checkpoints import load_model


def realistic(network: nn.Module, **settings: Any) -> Realistic:
    adapted = adapt(network, "realistic", **settings)
    assert isinstance(adapted, Realistic)
    return adapted


@cache
def photographs() -> tuple[Tensor, Tensor]:
    """Real ones, noisy: (120, 3, 32, 32), and their labels."""
    sample = load_sample()
    noisy = corrupt(sample.images[:120], "gaussian_noise", 5, np.random.default_rng(0))
    pixels = torch.from_numpy(noisy).permute(0, 3, 1, 2).float() / 255
    return pixels, torch.from_numpy(sample.labels[:120])


@contextlib.contextmanager
def sizes_seen(adapted: Realistic) -> Iterator[list[int]]:
    """How many images went through the network in each pass."""
    seen: list[int] = []
    hook = adapted.network.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    yield seen
    hook.remove()


def test_an_answer_is_the_images_own_and_its_mirror_images_by_their_likeness() -> None:
    """By another route: the mirror image through a frozen copy, that has the same statistics."""
    network, shown = load_model("cifar10"), photographs()[0][:24]
    adapted = realistic(network, label_runs=False)
    alone = realistic(network, label_runs=False, mirror=0)
    known = Likeness.none(10, torch.zeros(1))
    beliefs = []
    for one in shown.split(1):
        found, own = adapted(one), alone(one)
        with torch.no_grad():
            mirrored = alone.freeze()(one.flip(3))
        known = compare(known, own.softmax(1), mirrored.softmax(1), adapted.settings.decay)
        expected = second_look(known, own, mirrored)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        beliefs.append(known.belief().mean().item())
    assert beliefs[0] < 0.25
    assert beliefs[-1] > 0.75


def test_statistics_are_those_of_the_images_alone() -> None:
    adapted = realistic(load_model("cifar10"), label_runs=False)
    alone = realistic(load_model("cifar10"), label_runs=False, mirror=0)
    for size in (1, 2, 4, 1):
        batch = photographs()[0][:size]
        adapted(batch), alone(batch)
    for name, value in adapted.named_buffers(recurse=False):
        if not name.startswith(("mirror_", "order_")):  # answers differ
            torch.testing.assert_close(value, alone.get_buffer(name), atol=1e-5, rtol=1e-4)


def test_photographs_are_answered_better_with_it() -> None:
    shown, labels = photographs()

    def wrong(**settings: Any) -> int:
        adapted = realistic(load_model("cifar10"), **settings)
        answers = torch.cat([adapted(one).argmax(dim=1) for one in shown.split(1)])
        return int((answers != labels).sum())

    assert wrong() < wrong(mirror=0)


def test_small_batches_are_seen_twice_and_larger_ones_once() -> None:
    adapted = realistic(convolutional())
    with sizes_seen(adapted) as seen:
        for size in (1, 3, 4, 5, 16):
            assert len(adapted(images(size))) == size
    assert seen == [2, 6, 8, 5, 16]


def digits() -> tuple[Tensor, Tensor]:
    """Real ones, (image, 1, 8, 8), and what they are."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.from_numpy(data.images).float()[:, None] / 16, torch.from_numpy(data.target).long()


def learnt(shown: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """A network that has learnt these."""
    classes = int(labels.max()) + 1
    with on_cpu():
        network = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(288, classes)),
        )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for batch, truth in zip(shown.split(50), labels.split(50), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(batch), truth).backward()
            optimizer.step()
    return network.eval()


def test_digits_are_answered_as_without_a_mirror_and_it_is_looked_into_less_and_less() -> None:
    """A network of digits as they are: in the mirror they are nothing."""
    shown, labels = digits()
    network = learnt(shown[:1000], labels[:1000], epochs=4)
    shown = shown[1000:1120] * 0.5 + 0.2  # fog
    adapted, alone = realistic(network), realistic(network, mirror=0)
    with sizes_seen(adapted) as seen:
        for place, one in enumerate(shown.split(1)):
            found, own = adapted(one), alone(one)
            assert found.argmax() == own.argmax()
            if place >= 16:  # by then it is known
                torch.testing.assert_close(found, own, atol=1e-4, rtol=1e-4)
    assert seen[:32] == [2] * 32
    assert seen[40:].count(2) == 5  # with batches 48, 64, 80, 96 and 112


def test_two_classes_that_are_each_other_in_the_mirror_lose_nothing_by_those_that_are_not() -> None:
    """All digits from both sides; one of them is another class from behind."""
    shown, labels = digits()
    behind = torch.rand(len(shown), generator=torch.Generator().manual_seed(1)) < 0.5
    shown = torch.where(behind[:, None, None, None], shown.flip(3), shown)
    labels = torch.where(behind & (labels == 2), 10, labels)
    network = learnt(shown[:1000], labels[:1000], epochs=12)
    shown, labels = shown[1000:1500] * 0.5 + 0.2, labels[1000:1500]  # fog
    adapted, alone = (realistic(network, label_runs=False, mirror=size) for size in (4, 0))
    wrong, wrong_alone = (
        torch.cat([each(one).argmax(dim=1) for one in shown.split(1)]) != labels
        for each in (adapted, alone)
    )
    sided = (labels == 2) | (labels == 10)
    assert wrong[sided].sum() <= wrong_alone[sided].sum()
    assert wrong[~sided].sum() < wrong_alone[~sided].sum()
    belief = as_tensor(adapted.likeness.belief())
    assert belief[[2, 10]].eq(0).all()
    assert belief[[0, 1, 3, 4, 5, 6, 7, 8, 9]].gt(0.9).all()


class OneByOne(nn.Module):
    """Written for single images."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolutional()

    def forward(self, shown: Tensor) -> Tensor:
        logits: Tensor = self.inner(shown)
        return logits.view(1, 5)


class WithShape(nn.Module):
    """Returns more than tensors of a row for each image."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolutional()

    def forward(self, shown: Tensor) -> dict[str, Any]:
        return {"logits": self.inner(shown), "level": shown.mean(), "images": len(shown)}


@pytest.mark.parametrize("make", [OneByOne, WithShape])
def test_a_network_that_does_not_take_it_is_left_in_peace(make: type[nn.Module]) -> None:
    with on_cpu():
        network = make().eval()
    adapted = realistic(network, classes=5)
    alone = realistic(network, classes=5, mirror=0)
    for seed in range(3):
        found, expected = adapted(images(1, seed)), alone(images(1, seed))
        assert _listed(found) == _listed(expected)
    assert not adapted.takes_mirror
    assert same(snapshot(adapted), snapshot(alone))


def _listed(outputs: Any) -> list[Any]:
    several = outputs.values() if isinstance(outputs, dict) else [outputs]
    return [each.tolist() if isinstance(each, Tensor) else each for each in several]


@pytest.mark.parametrize("given", ["alone", "keyword", "mapping"])
def test_images_may_come_and_answers_may_go_in_any_form(given: str) -> None:
    """What else the network returns of an image is that of the image, not of its mirror image."""

    class Forms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = convolutional()

        def forward(self, shown: Any) -> dict[str, Any]:
            shown = shown["image"] if isinstance(shown, dict) else shown
            return {"logits": self.inner(shown), "all": (shown[:, :, 0, 0], [shown])}

    with on_cpu():
        adapted = realistic(Forms().eval(), classes=5)
    plain = realistic(convolutional())
    for seed in range(20):
        batch = images(2, seed)
        found = {
            "alone": lambda batch=batch: adapted(batch),
            "keyword": lambda batch=batch: adapted(shown=batch),
            "mapping": lambda batch=batch: adapted({"image": batch}),
        }[given]()
        assert found["logits"].equal(plain(batch))
        assert found["all"][0].equal(batch[:, :, 0, 0])
        assert found["all"][1][0].equal(batch)
    assert adapted.takes_mirror
    assert adapted.mirror_images.sum() > 0


def test_a_batch_that_does_not_fit_says_so_and_leaves_everything_as_it_was() -> None:
    adapted = realistic(convolutional())
    adapted(images(2))
    before = snapshot(adapted)
    with pytest.raises(ForwardError, match=r"float32\[1, 4, 12, 12\]"):
        adapted(torch.rand(1, 4, 12, 12))
    assert same(before, snapshot(adapted))
    assert adapted.takes_mirror


def test_more_than_images_is_handed_on_as_it_came() -> None:
    class Told(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = convolutional()

        def forward(self, shown: Tensor, level: Tensor) -> Tensor:
            assert len(shown) == len(level)
            logits: Tensor = self.inner(shown + level)
            return logits

    with on_cpu():
        adapted = realistic(Told().eval(), classes=5)
    assert adapted(images(2), level=torch.zeros(2, 1, 1, 1)).shape == (2, 5)
    assert adapted.takes_mirror


def test_a_single_image_is_enough_for_a_layer_without_positions() -> None:
    """Its distance from the source's mean counts, in the memory that has other images, too."""
    with on_cpu():
        head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(3))
        network = randomize(nn.Sequential(*head, nn.Linear(3, 5)))
    one_by_one, whole = realistic(network), realistic(network, mirror=0)
    for seed in range(20):
        assert torch.isfinite(one_by_one(images(1, seed))).all()
    whole(torch.cat([images(1, seed) for seed in range(20)]))
    torch.testing.assert_close(one_by_one.memories[0], whole.memories[0], atol=0.05, rtol=0.05)
    with pytest.raises(InputError, match="a single value a channel has no variance"):
        realistic(network, total_variance=False)(images(1))


def test_what_is_known_of_the_mirror_is_forgotten_saved_and_copied() -> None:
    adapted = realistic(load_model("cifar10"))
    fresh = snapshot(adapted)
    for one in photographs()[0][:4].split(1):
        adapted(one)
    assert adapted.mirror_images.sum().item() == pytest.approx(4, abs=0.02)
    again = copy.deepcopy(adapted)
    assert again(photographs()[0][:1]).equal(adapted(photographs()[0][:1]))
    adapted.reset()
    assert same(fresh, snapshot(adapted))


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_an_answer_that_overflows_is_not_remembered(broken: float) -> None:
    """Neither an image's nor its mirror image's: one would make all that follow NaN."""

    class Overflows(nn.Module):
        row = -1

        def __init__(self) -> None:
            super().__init__()
            self.inner = convolutional()

        def forward(self, shown: Tensor) -> Tensor:
            logits: Tensor = self.inner(shown)
            logits[self.row] = logits[self.row] + broken * (self.row >= 0)
            return logits

    with on_cpu():
        adapted = realistic(Overflows().eval(), classes=5, label_runs=False)
    alone = realistic(convolutional(), label_runs=False, mirror=0)
    for seed in range(12):
        adapted(images(2, seed)), alone(images(2, seed))
    known = adapted.mirror_sums.clone()
    network: Any = adapted.network
    for row in (2, 0):  # a mirror image's, then an image's own
        network.row = row
        found, own = adapted(images(2, row)), alone(images(2, row))
        assert torch.isfinite(found[1]).all()
        if row == 2:
            torch.testing.assert_close(found[0], own[0])
    network.row = -1
    assert torch.isfinite(adapted.mirror_sums).all()
    assert not adapted.mirror_sums.equal(known)
    assert torch.isfinite(adapted(images(2))).all()


@pytest.mark.parametrize("mirror", [-1, 1.5, True])
def test_settings_that_cannot_be_are_refused(mirror: Any) -> None:
    with pytest.raises(SettingError, match=r"mirror is .*; expected a whole number of 0"):
        realistic(convolutional(), mirror=mirror)


def test_domains_has_no_mirror() -> None:
    with pytest.raises(SettingError, match="mirror=2"):
        adapt(convolutional(), "domains", mirror=2)
