from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.image_moments import Units
from realistic_tta.functional.signature import Marks, has_signature, signatures


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def signature(shown: Tensor) -> Tensor:
    """Of images, (image, channel, *positions), as if each were one part."""
    return Marks.of(shown[:, :, None]).signature()[:, 0]


def by_hand(image: np.ndarray) -> list[float]:
    """Of one channel of one picture, position by position."""
    high, wide = image.shape
    changes = [
        image[row + 1, place + 1]
        - image[row, place + 1]
        - image[row + 1, place]
        + image[row, place]
        for row in range(high - 1)
        for place in range(wide - 1)
    ]
    square = float(np.mean(np.square(changes)))
    return [float(image.mean()), float(np.log(image.var() + 0.01)), float(np.log(square + 0.01))]


def test_a_signature_is_mean_variance_and_change_of_every_channel() -> None:
    pictures = values(2, 3, 5, 6)
    found = signature(pictures)
    for image, channel in ((0, 0), (1, 2)):
        mine = found[image].view(3, 3)[:, channel].tolist()
        assert mine == pytest.approx(by_hand(pictures[image, channel].double().numpy()), abs=1e-5)


def test_signatures_are_in_the_sources_units() -> None:
    """Images of the source's own mean and variance have mean 0 and a variance of 1."""
    mean, variance = torch.tensor([3.0, -1.0]), torch.tensor([4.0, 0.25])
    units = Units.of(ChannelStatistics(mean, variance), 0.0)
    shown = values(4, 2, 16, 16) * variance.sqrt().view(2, 1, 1) + mean.view(2, 1, 1)
    one = Units.of(ChannelStatistics(torch.zeros(2), torch.ones(2)), 0.0)
    for found, plain in zip(
        signatures(shown, units), signatures(values(4, 2, 16, 16), one), strict=True
    ):
        torch.testing.assert_close(found, plain, atol=1e-4, rtol=1e-4)
    whole, _ = signatures(shown, units)
    assert whole[:, :4].abs().max() < 0.3  # mean and logarithm of the variance


def test_a_whole_image_has_the_variance_between_its_parts() -> None:
    """And what changes inside of them."""
    units = Units.of(ChannelStatistics(torch.zeros(2), torch.ones(2)), 0.0)
    shown = values(3, 2, 8, 8)
    shown[..., :4, :] += 5
    whole, parts = signatures(shown, units)
    expected = signature(shown)
    torch.testing.assert_close(whole[:, :4], expected[:, :4], atol=1e-5, rtol=1e-5)
    squares = parts[..., 4:].exp().mean(dim=1)
    torch.testing.assert_close(whole[:, 4:].exp(), squares, atol=1e-5, rtol=1e-5)


def test_what_is_left_of_an_odd_number_is_not_looked_at() -> None:
    units = Units.of(ChannelStatistics(torch.zeros(2), torch.ones(2)), 0.0)
    shown = values(3, 2, 9, 11)
    for found, even in zip(
        signatures(shown, units), signatures(shown[..., :8, :10], units), strict=True
    ):
        assert torch.equal(found, even)


@pytest.mark.parametrize(("shape", "parts"), [((8,), 2), ((8, 8), 4), ((4, 8, 8), 4)])
def test_parts_are_halves_along_the_last_two_axes(shape: tuple[int, ...], parts: int) -> None:
    units = Units.of(ChannelStatistics(torch.zeros(2), torch.ones(2)), 0.0)
    shown = values(3, 2, *shape)
    whole, halves = signatures(shown, units)
    assert whole.shape == (3, 6)
    assert halves.shape == (3, parts, 6)
    first = shown[
        tuple(
            [slice(None)] * 2
            + [slice(None)] * (len(shape) > 2)
            + [slice(0, 4)] * min(2, len(shape))
        )
    ]
    torch.testing.assert_close(halves[:, 0], signature(first))


def test_many_images_have_the_signatures_of_each_alone() -> None:
    """However many are looked at at once: here about a hundred."""
    units = Units.of(ChannelStatistics(torch.zeros(2), torch.ones(2)), 0.0)
    shown = values(300, 2, 24, 26)
    for found, alone in zip(
        signatures(shown, units),
        zip(*(signatures(each, units) for each in shown.split(1)), strict=True),
        strict=True,
    ):
        torch.testing.assert_close(found, torch.cat(alone))


@given(st.integers(1, 4), st.integers(0, 100))
def test_noise_shows_in_what_changes_and_blur_takes_it_away(channels: int, seed: int) -> None:
    smooth = values(1, channels, 1, 1, seed=seed).expand(1, channels, 16, 16)
    rough = smooth + 0.5 * values(1, channels, 16, 16, seed=seed + 1)
    blurred = torch.nn.functional.avg_pool2d(rough, 3, stride=1)
    change = [signature(each)[0, 2 * channels :].min() for each in (smooth, blurred, rough)]
    assert change[0] < change[1] < change[2]


def test_what_has_no_parts_has_no_signature() -> None:
    assert has_signature(values(2, 3, 4, 4))
    assert not any(has_signature(values(*shape)) for shape in ((2, 3), (2, 3, 3, 8), (2, 3, 1, 1)))
