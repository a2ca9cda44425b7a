"""The views of cotta and adacontrast: their recipes step by step, their ranges, their draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from realistic_tta.methods._training.views import contrast_views, cotta_view
from realistic_tta.methods._training.views.contrast_views import strong_view, weak_view
from realistic_tta.methods._training.views.cotta_view import CottaView
from realistic_tta.methods._training.views.draws import chosen, orders, uniform

View = Callable[[Tensor, torch.Generator], Tensor]
VIEWS: list[View] = [cotta_view.cotta_view, weak_view, strong_view]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)


def batch(count: int = 4, channels: int = 3, rows: int = 32, columns: int = 32) -> Tensor:
    return torch.rand(count, channels, rows, columns, generator=generator(5))


def published(images: Tensor, view: CottaView) -> Tensor:
    """The recipe to the letter, with torchvision: pad by half, map all of it, blur, cut, flip."""
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    rows, columns = images.shape[2:]
    changes: list[Callable[[Tensor], Tensor]] = [
        lambda x: functional.adjust_brightness(x, view.factors[0]),
        lambda x: functional.adjust_contrast(x, view.factors[1]),
        lambda x: functional.adjust_saturation(x, view.factors[2]),
        lambda x: functional.adjust_hue(x, view.factors[3]),
        lambda x: functional.adjust_gamma(x.clamp(1e-8, 1), view.factors[4]),
    ]
    for place in view.order:
        images = changes[place](images)
    images = functional.pad(images, [columns // 2, rows // 2], padding_mode="edge")
    height, width = images.shape[2:]
    images = functional.affine(
        images,
        angle=view.angle,
        translate=[round(view.shift[0] * width), round(view.shift[1] * height)],
        scale=view.scale,
        shear=[0.0, 0.0],
        interpolation=functional.InterpolationMode.BILINEAR,
    )
    images = functional.gaussian_blur(images, [5, 5], [view.sigma, view.sigma])
    images = functional.center_crop(images, [rows, columns])
    mirrored: Tensor = functional.horizontal_flip(images) if view.mirrored else images
    return mirrored


@pytest.mark.parametrize("sides", [(32, 32), (33, 32), (9, 9), (12, 40)], ids=str)
def test_cottas_view_is_the_published_recipe_without_its_padding(sides: tuple[int, int]) -> None:
    """Wide and small images too, whose corners come from outside the padded picture."""
    images = batch(2, 3, *sides)
    for seed in range(12):
        view = CottaView.draw(generator(seed))
        torch.testing.assert_close(view.of(images), published(images, view), atol=3e-5, rtol=0)


def test_cottas_view_is_one_draw_for_the_whole_batch() -> None:
    images = batch(1).repeat(3, 1, 1, 1)
    for seed in range(5):
        first, *others = CottaView.draw(generator(seed)).of(images)
        for other in others:
            torch.testing.assert_close(first, other, atol=1e-6, rtol=0)
    noisy = cotta_view.cotta_view(images, generator())
    assert not torch.equal(noisy[0], noisy[1])


def test_cottas_noise_has_the_published_deviation() -> None:
    images = torch.full((50, 3, 32, 32), 0.5)
    view = CottaView.draw(draws := generator(3)).of(images)
    assert view.std() < 1e-6
    noise = cotta_view.cotta_view(images, draws.manual_seed(3)) - view
    assert noise.std().item() == pytest.approx(0.005, rel=0.02)
    assert noise.mean().abs() < 1e-4


def test_cottas_draws_fill_the_published_ranges() -> None:
    draws = generator()
    views = [CottaView.draw(draws) for _ in range(2000)]
    for place, (low, high) in enumerate(
        [(0.6, 1.4), (0.7, 1.3), (0.5, 1.5), (-0.06, 0.06), (0.7, 1.3)]
    ):
        assert_fills([view.factors[place] for view in views], low, high)
    assert_fills([view.angle for view in views], -15, 15)
    assert_fills([view.shift[0] for view in views], -1 / 16, 1 / 16)
    assert_fills([view.shift[1] for view in views], -1 / 16, 1 / 16)
    assert_fills([view.scale for view in views], 0.9, 1.1)
    assert_fills([view.sigma for view in views], 0.001, 0.5)
    assert sum(view.mirrored for view in views) == pytest.approx(1000, abs=100)
    assert len({view.order for view in views}) == 120


def assert_fills(values: list[float], low: float, high: float) -> None:
    span = high - low
    assert low <= min(values) < low + 0.01 * span
    assert high - 0.01 * span < max(values) <= high
    assert sum(values) / len(values) == pytest.approx((low + high) / 2, abs=0.03 * span)


def test_a_weak_view_is_the_image_or_its_mirror_image() -> None:
    images = batch(400, rows=4, columns=5)
    found = weak_view(images, generator())
    same = (found == images).flatten(1).all(dim=1)
    mirrored = (found == images.flip(3)).flatten(1).all(dim=1)
    assert (same ^ mirrored).all()
    assert int(mirrored.sum()) == pytest.approx(200, abs=40)


def test_a_strong_view_treats_each_image_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything switched on, no two copies of an image look alike; off, all do."""
    images = batch(1, rows=8, columns=8).repeat(6, 1, 1, 1)
    monkeypatch.setattr(contrast_views, "chosen", lambda _p, _g, n: torch.zeros(n).bool())
    assert torch.equal(strong_view(images, generator()), images)
    monkeypatch.setattr(contrast_views, "chosen", lambda p, _g, n: torch.full((n,), p > 0.2))
    seen = strong_view(images, generator()).flatten(1)
    distances = torch.cdist(seen, seen) + torch.eye(6)
    assert distances.min() > 1e-3


def test_strong_views_jitter_gray_and_mirror_as_often_as_published() -> None:
    images = batch(2000, rows=2, columns=2)
    seen: list[float] = []

    def record(probability: float, draws: torch.Generator, count: int) -> Tensor:
        seen.append(probability)
        return chosen(probability, draws, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contrast_views, "chosen", record)
        found = strong_view(images, generator())
    assert seen == [0.8, 0.2, 0.5, 0.5]
    gray = (found - found.mean(dim=1, keepdim=True)).abs().amax(dim=(1, 2, 3)) < 1e-3
    assert int(gray.sum()) == pytest.approx(400, abs=60)


def test_jitter_applies_all_four_changes_in_the_drawn_order() -> None:
    """Against one image at a time, in a plain loop."""
    images, draws = batch(30, rows=4, columns=4), generator(2)
    found = contrast_views.jitter(images, torch.ones(30).bool(), draws)
    draws.manual_seed(2)
    order = orders(4, draws, 30).tolist()
    factors = [uniform(low, high, draws, 30).tolist() for _, low, high in contrast_views.JITTER]
    assert len(set(map(tuple, order))) > 10
    for number, image in enumerate(images.split(1)):
        for place in order[number]:
            change: Callable[..., Tensor] = contrast_views.JITTER[place][0]
            image = change(image, factors[place][number])  # noqa: PLW2901
        torch.testing.assert_close(found[number : number + 1], image, atol=1e-6, rtol=0)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_views_keep_shape_type_and_range_and_leave_the_images_alone(
    view: View, dtype: torch.dtype
) -> None:
    for channels in (1, 3):
        images = batch(3, channels, 7, 11).to(dtype)
        before = images.clone()
        seen = view(images, generator())
        assert torch.equal(images, before)
        assert seen.shape == images.shape
        assert seen.dtype == dtype
        assert 0 <= seen.min() <= seen.max() <= 1


@pytest.mark.parametrize("view", VIEWS)
def test_the_generator_alone_decides(view: View) -> None:
    """Neither the global seed nor the default device; one seed, one view; the next differs."""
    images, draws = batch(), generator(1)
    first, second = view(images, draws), view(images, draws)
    assert not torch.equal(first, second)
    torch.manual_seed(99)
    with torch.device("meta"):
        assert torch.equal(view(images, draws.manual_seed(1)), first)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("side", [1, 2, 3])
def test_the_smallest_images_have_views(view: View, side: int) -> None:
    seen = view(batch(2, 3, side, side), generator())
    assert seen.shape == (2, 3, side, side)
    assert torch.isfinite(seen).all()
