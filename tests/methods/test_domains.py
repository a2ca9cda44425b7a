from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from subjects import convolutional, images, on_cpu, randomize
from torch import Tensor, nn

from realistic_tta import SettingError, adapt
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.corruptions import corrupt
from realistic_tta.functional import kernel
from realistic_tta.methods.domains import DomainsMethod
from realistic_tta.models.checkpoints import load_model

KINDS = (("speckle_noise", 5), ("gaussian_blur", 5), ("saturate", 5))


@cache
def taking_turns() -> tuple[Tensor, Tensor]:
    """300 photographs, each under one of three corruptions, in turns; and their labels."""
    sample = load_sample()
    pixels = sample.images[:300].copy()
    for place, (name, severity) in enumerate(KINDS):
        mine = slice(place, None, len(KINDS))
        pixels[mine] = corrupt(pixels[mine], name, severity, generator=np.random.default_rng(0))
    shown = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
    return shown, torch.from_numpy(sample.labels[:300])


def batches(size: int) -> Iterator[tuple[Tensor, Tensor]]:
    yield from zip(*(each.split(size) for each in taking_turns()), strict=True)


def error(method: str, size: int) -> float:
    """Percent wrong."""
    adapted = adapt(load_model("cifar10"), method)
    wrong = [adapted(shown).argmax(dim=1) != labels for shown, labels in batches(size)]
    return 100 * torch.cat(wrong).float().mean().item()


@pytest.mark.parametrize("size", [1, 16])
def test_where_kinds_take_turns_it_is_better_than_one_set_of_statistics(size: int) -> None:
    """On real photographs and the package's network."""
    assert error("domains", size) < error("realistic", size) - 3


def test_where_one_kind_stays_it_is_as_good_as_realistic() -> None:
    """Pictures of one kind fall into groups, too; those are not to be believed in.

    Looked at once, as `domains` does: what a second look adds is not the question here.
    """
    sample = load_sample()
    pixels = corrupt(sample.images[:300], *KINDS[0], generator=np.random.default_rng(0))
    shown = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
    network, wrong = load_model("cifar10"), []
    for adapted in (adapt(network, "realistic", mirror=0), adapt(network, "domains")):
        answers = torch.cat([adapted(batch).argmax(dim=1) for batch in shown.split(4)])
        wrong.append(100 * (answers.numpy() != sample.labels[:300]).mean())
    assert wrong[1] <= wrong[0] + 1


def test_noise_and_blur_are_not_taken_for_one_kind() -> None:
    adapted = adapt(load_model("cifar10"), "domains")
    assert isinstance(adapted, DomainsMethod)
    shown, _ = taking_turns()
    noise, blur = (shown[place::3] for place in (0, 1))
    for one, other in zip(noise.split(1), blur.split(1), strict=True):
        adapted(one)
        after_noise = adapted.kinds.images.clone()
        adapted(other)
        taken = (adapted.kinds.images - after_noise).argmax()
        last = taken.item()
    after = adapted.kinds.images.clone()
    adapted(noise[:1])
    assert (adapted.kinds.images - after).argmax().item() != last


def test_each_image_of_a_batch_has_the_statistics_of_its_kind() -> None:
    """After a batch of two kinds an image is answered as it would be in a batch of its own kind."""
    shown, _ = taking_turns()
    adapted = adapt(load_model("cifar10"), "domains")
    for batch in shown.split(20):
        adapted(batch)
    together = adapted(shown[:60])
    apart = torch.zeros_like(together)
    for place in range(3):
        apart[place::3] = adapted(shown[place:60:3])
    assert (together.argmax(dim=1) == apart.argmax(dim=1)).float().mean() > 0.9


def test_a_batch_of_one_kind_is_frozen_as_it_was_predicted() -> None:
    batch = images(1).expand(6, -1, -1, -1)
    adapted = adapt(convolutional(), "domains")
    logits = adapted(batch)
    with torch.no_grad():
        torch.testing.assert_close(adapted.freeze()(batch), logits, atol=1e-5, rtol=1e-4)


def test_without_positions_it_is_realistic(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no parts has no kind; to the last bit where both are Python's."""
    monkeypatch.setattr(kernel, "kernel", None)
    with on_cpu():
        network = randomize(
            nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        )
    plain, kinds = adapt(network, "realistic"), adapt(network, "domains")
    for seed in range(4):
        batch = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(plain(batch), kinds(batch))


def test_a_single_image_is_enough_for_a_layer_without_positions() -> None:
    """A BatchNorm behind a pooling: one value a channel. Many such images are a batch of them."""
    with on_cpu():
        body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(4))
        network = randomize(nn.Sequential(body, head, nn.Linear(4, 5)))
    one_by_one, whole = adapt(network, "domains"), adapt(network, "domains")
    shown = torch.cat([images(1, seed) for seed in range(20)])
    for one in shown.split(1):
        assert torch.isfinite(one_by_one(one)).all()
    whole(shown)
    own, expected = (each.get_buffer("memories")[0, -8:] for each in (one_by_one, whole))
    torch.testing.assert_close(own, expected, atol=0.1, rtol=0.1)


def test_a_camera_that_is_stuck_leaves_everything_finite() -> None:
    """Images that do not differ have no spread to measure by."""
    adapted = adapt(convolutional(), "domains", source_batch_size=8)
    stuck = images(1)
    for _ in range(200):
        adapted(stuck)
    logits = [adapted(images(3, seed=seed)) for seed in range(3)]
    assert all(torch.isfinite(each).all() for each in logits)
    assert all(torch.isfinite(each).all() for each in adapted.state_dict().values())


class Twice(nn.Module):
    """One BatchNorm layer used on the same images twice."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.norm = randomize(nn.BatchNorm2d(3))
        self.times = times

    def forward(self, batch: Tensor) -> Tensor:
        for _ in range(self.times):
            outputs: Tensor = self.norm(batch)
        return outputs.mean(dim=(2, 3))


def test_a_layer_used_twice_remembers_its_images_once() -> None:
    once, twice = (adapt(Twice(times), "domains", classes=3) for times in (1, 2))
    for seed in range(3):
        assert torch.allclose(once(images(4, seed=seed)), twice(images(4, seed=seed)), atol=1e-5)
    for name in ("domain_moments", "domain_spread", "domain_total"):
        torch.testing.assert_close(
            once.get_buffer(name), twice.get_buffer(name), atol=1e-5, rtol=1e-4
        )


class Squared(nn.BatchNorm2d):
    """A BatchNorm that does more than normalise, as timm's BatchNormAct2d."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).square()


def test_layers_that_do_more_than_normalise_still_do() -> None:
    """With statistics of each image, too."""
    with on_cpu():
        network = nn.Sequential(Squared(3), nn.Flatten(), nn.Linear(432, 5))
        randomize(network)
        plain = nn.Sequential(nn.BatchNorm2d(3), Square(), nn.Flatten(), nn.Linear(432, 5))
    plain[0].load_state_dict(network[0].state_dict())
    plain[3].load_state_dict(network[2].state_dict())
    adapted, other = adapt(network, "domains"), adapt(plain, "domains")
    for seed in range(3):
        for each in (adapted, other):
            each.get_buffer("believed").fill_(1)  # so that every image has statistics of its own
        kinds = torch.cat([images(3, seed=seed), 0.05 * images(3, seed=seed + 9)])
        torch.testing.assert_close(adapted(kinds), other(kinds), atol=1e-4, rtol=1e-4)
    used = adapted.get_buffer("kinds_images") > 0
    assert used.sum() > 1


class Square(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.square()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"domains": 0}, "domains is 0"),
        ({"robust": True}, "cannot be had with robust=True"),
        ({"total_variance": False}, "cannot be had with total_variance=False"),
        ({"changes": True}, "cannot be had with changes=True"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        adapt(convolutional(), "domains", **settings)  # type: ignore[arg-type]
