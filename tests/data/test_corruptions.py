"""Each corruption against its definition: by hand, a plain loop, or another library's route."""

from __future__ import annotations

import colorsys
import io
import math
from typing import Any

import cv2
import numpy as np
import pytest
from data.pictures import flat, pictures
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.ndimage import zoom as scipy_zoom

from realistic_tta.data.corruptions import blur, digital, noise, weather
from realistic_tta.data.corruptions.parameters import PARAMETERS
from realistic_tta.data.corruptions.pixels import (
    Bytes,
    from_hsv,
    motion_blur,
    motion_weights,
    to_bytes,
    to_hsv,
    zoom,
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def close(found: Bytes, expected: NDArray[Any], levels: int = 1) -> bool:
    difference = np.abs(found.astype(int) - np.floor(np.clip(expected, 0, 255)).astype(int))
    return bool(difference.max() <= levels)


def test_bytes_are_cut_off_not_rounded() -> None:
    assert to_bytes(np.array([-1, 0, 0.999, 1, 2])).tolist() == [0, 0, 254, 255, 255]


def test_gaussian_noise_has_the_given_deviation() -> None:
    found = noise.gaussian_noise(flat(128, 50), 0.1, generator=generator()) / 255
    assert found.std() == pytest.approx(0.1, rel=0.02)
    assert found.mean() == pytest.approx(128 / 255 - 0.5 / 255, abs=0.002)  # cut off: half a level


def test_shot_noise_has_the_variance_of_counting() -> None:
    """Poisson: the variance of the count is its mean, so that of the image is image / photons."""
    found = noise.shot_noise(flat(102, 50), 100, generator=generator()) / 255
    assert found.var() == pytest.approx(0.4 / 100, rel=0.03)


def test_speckle_noise_grows_with_the_light() -> None:
    for level in (64, 128):
        found = noise.speckle_noise(flat(level, 50), 0.1, generator=generator()) / 255
        assert found.std() == pytest.approx(0.1 * level / 255, rel=0.03)


def test_impulse_noise_hits_the_given_share_half_black_half_white() -> None:
    found = noise.impulse_noise(flat(100, 100), 0.07, generator=generator())
    assert np.mean(found == 255) == pytest.approx(0.035, rel=0.05)
    assert np.mean(found == 0) == pytest.approx(0.035, rel=0.05)
    assert np.mean(found == 100) == pytest.approx(0.93, rel=0.01)


@pytest.mark.parametrize("side", PARAMETERS)
def test_blur_kernels_sum_to_one(side: int) -> None:
    for radius, alias_blur in PARAMETERS[side]["defocus_blur"]:
        kernel = blur.disk(radius, alias_blur)
        # As published: at these two the grid ends at the rim, which the softening mirrors inwards.
        published = {8.0: 1.0130, 10.0: 1.0108}.get(radius, 1.0)
        assert kernel.sum() == pytest.approx(published, abs=1e-4)
        np.testing.assert_allclose(kernel, kernel.T, atol=1e-12)
    for radius, sigma in PARAMETERS[side]["motion_blur"]:
        assert motion_weights(int(radius), sigma).sum() == pytest.approx(1)


@pytest.mark.parametrize("level", [0, 77, 255])
@pytest.mark.parametrize(
    "name", ["defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"]
)
def test_blurs_leave_an_even_image_alone(name: str, level: int) -> None:
    found = getattr(blur, name)(flat(level), *PARAMETERS[32][name][4], generator=generator())
    assert np.abs(found.astype(int) - level).max() <= 2  # cut off after each of two blurs


def test_defocus_blur_is_a_convolution() -> None:
    """Pixel by pixel, the image mirrored at its edge."""
    image = pictures(1)
    kernel = blur.disk(1.5, 0.1)
    padded = np.pad(image[0].astype(float), ((8, 8), (8, 8), (0, 0)), mode="reflect")
    expected = np.zeros((32, 32, 3))
    for row in range(32):
        for column in range(32):
            patch = padded[row : row + 17, column : column + 17]
            expected[row, column] = (patch * kernel[:, :, None]).sum((0, 1))
    assert close(blur.defocus_blur(image, 1.5, 0.1, generator=generator())[0], expected)


def test_glass_blur_is_the_published_loop() -> None:
    """One image through the two nested loops, drawing the same neighbors."""
    image = pictures(1)
    found = blur.glass_blur(image, 0.4, 1, 2, generator=generator(3))
    draws = generator(3)
    plain = to_bytes(gaussian_filter(image[0] / 255, (0.4, 0.4, 0), mode="nearest"))
    for _ in range(2):
        for row in range(31, 1, -1):
            steps = draws.integers(-1, 1, (30, 2, 1))
            for number, column in enumerate(range(31, 1, -1)):
                across, down = steps[number, :, 0]
                plain[row, column] = plain[row + down, column + across]
    expected = gaussian_filter(plain / 255, (0.4, 0.4, 0), mode="nearest") * 255
    assert close(found[0], expected)


def test_motion_blur_along_the_row_by_hand() -> None:
    """Angle 0: each pixel is the weighted mean of those to its right, the last repeated."""
    image = np.arange(6, dtype=float)[None, :].repeat(6, axis=0)
    weights = motion_weights(1, 1.0)
    found = motion_blur(image, 1, 1.0, 0.0)
    for column in range(6):
        expected = sum(w * min(column + place, 5) for place, w in enumerate(weights))
        assert found[:, column] == pytest.approx(expected)


def test_motion_blur_downwards_by_hand() -> None:
    image = np.arange(6, dtype=float)[:, None].repeat(6, axis=1)
    found = motion_blur(image, 1, 1.0, 90.0)
    weights = motion_weights(1, 1.0)
    assert found[0] == pytest.approx(float(weights @ [0, 1, 2]))


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.11, 1.25, 1.75, 2.25, 4.5])
@pytest.mark.parametrize("side", [32, 224])
def test_zoom_is_scipys_of_order_one_cropped(factor: float, side: int) -> None:
    image = pictures(1, side)[0].astype(np.float32)
    crop = math.ceil(side / factor)
    top = (side - crop) // 2
    large = scipy_zoom(image[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
    trim = (large.shape[0] - side) // 2
    expected = large[trim : trim + side, trim : trim + side]
    np.testing.assert_allclose(zoom(image[None], factor)[0], expected, atol=0.02)


def test_zoom_blur_averages_the_image_and_its_zooms() -> None:
    image = pictures(2)
    numbers = image.astype(np.float32) / 255
    copies = [zoom(numbers, float(factor)) for factor in np.arange(1, 1.26, 0.01)]
    expected = np.mean(np.stack([numbers, *copies]), axis=0) * 255
    assert close(blur.zoom_blur(image, 1.26, 0.01, generator=generator()), expected)


def test_fog_scales_by_the_brightest() -> None:
    """(image + amount * cloud) * max / (max + amount): the cloud has its own 0 and 1."""
    images = flat(128, 2)
    found = weather.fog(images, 1.5, 1.75, generator=generator(1))
    cloud = weather.plasma(2, 32, 1.75, generator(1))[..., None]
    assert cloud.min() == 0
    assert cloud.max() == 1
    brightest = 128 / 255
    expected = (brightest + 1.5 * cloud) * brightest / (brightest + 1.5) * 255
    assert close(found, np.broadcast_to(expected, images.shape))


def test_plasma_is_the_published_diamond_square() -> None:
    """One map, point by point with wrapped neighbors, drawing the same noise."""
    size, decay, draws = 8, 2.0, generator(5)
    grid, step, wibble = np.zeros((size, size)), size, 100.0
    while step >= 2:
        half = step // 2

        def point(four: list[float], at: tuple[int, int], draw: NDArray[np.float64]) -> None:
            grid[at] = sum(four) / 4 + wibble * draw[0, at[0] // step, at[1] // step]  # noqa: B023

        cells = range(0, size, step)
        shape = (1, len(cells), len(cells))
        squares, tops, lefts = (draws.uniform(-wibble, wibble, shape) for _ in range(3))
        for r in cells:
            for c in cells:
                s, t = (r + step) % size, (c + step) % size
                point(
                    [grid[r, c], grid[s, c], grid[r, t], grid[s, t]], (r + half, c + half), squares
                )
        for r in cells:
            for c in cells:
                up, left = (r - half) % size, (c - half) % size
                t, s = (c + step) % size, (r + step) % size
                middle = grid[r + half, c + half]
                point([middle, grid[up, c + half], grid[r, c], grid[r, t]], (r, c + half), tops)
                point([middle, grid[r + half, left], grid[r, c], grid[s, c]], (r + half, c), lefts)
        step, wibble = half, wibble / decay
    grid -= grid.min()
    (found,) = weather.plasma(1, size, decay, generator(5))
    np.testing.assert_allclose(found, grid / grid.max(), atol=1e-6)


def test_frost_is_a_piece_of_a_photograph() -> None:
    """Over black, what is left is the frost: somewhere in one of the five photographs."""
    (piece,) = weather.frost(flat(0, 1), 0.75, 1.0, 0.2, generator=generator(2))
    found = 0
    for number in range(5):
        photo = weather.frost_photo(number, 0.2)
        windows = np.lib.stride_tricks.sliding_window_view(photo[..., 0], (32, 32))
        found += int((windows == piece[..., 0]).all((2, 3)).any())
    assert found >= 1


def test_frost_photographs_keep_their_colors() -> None:
    for number in range(5):
        assert weather.frost_photo(number, 1.0).shape[0] > 224
        assert weather.frost_photo(number, 0.2).shape[0] > 32
        blue, red = weather.frost_photo(number, 1.0)[..., [2, 0]].mean((0, 1))
        assert blue > red  # ice


def test_snow_whitens_and_falls_twice() -> None:
    """Over black: 0.2 * 0.5 everywhere, plus flakes that are the same turned by 180 degrees."""
    images = weather.snow(flat(0, 3), *PARAMETERS[32]["snow"][4], generator=generator())
    assert images.min() == int(0.2 * 0.5 * 255)
    np.testing.assert_array_equal(images, images[:, ::-1, ::-1])


@pytest.mark.parametrize("level", [0, 100, 250])
def test_brightness_raises_the_largest_color(level: int) -> None:
    image = flat(level)
    image[..., 1] //= 2
    found = weather.brightness(image, 0.3, generator=generator())
    expected = min(level / 255 + 0.3, 1)
    assert found[..., 0] == pytest.approx(expected * 255, abs=1)
    if level:
        assert found[0, 0, 0, 1] / found[0, 0, 0, 0] == pytest.approx(0.5, abs=0.02)


def test_colors_agree_with_the_standard_library() -> None:
    colors = generator().integers(0, 256, (300, 3)) / 255
    colors[:20] = colors[:20, :1]  # grays
    found = to_hsv(colors)
    expected = np.array([colorsys.rgb_to_hsv(*color) for color in colors])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(from_hsv(found), colors, atol=1e-12)


def test_saturate_by_the_standard_library() -> None:
    image = pictures(1)
    found = digital.saturate(image, 1.5, 0.1, generator=generator())
    for row, column in [(0, 0), (7, 20), (31, 31)]:
        hue, saturation, value = colorsys.rgb_to_hsv(*(image[0, row, column] / 255))
        expected = colorsys.hsv_to_rgb(hue, min(saturation * 1.5 + 0.1, 1), value)
        assert found[0, row, column] == pytest.approx(np.array(expected) * 255, abs=1.001)


def test_contrast_by_hand() -> None:
    """Half 0 and half 200, factor 0.15: 100 -+ 15 levels."""
    image = flat(0, 1)
    image[:, :16] = 200
    found = digital.contrast(image, 0.15, generator=generator())
    assert np.unique(found[:, :16]).tolist() == [115]
    assert np.unique(found[:, 16:]).tolist() in ([84], [85])


def test_pixelate_by_hand() -> None:
    """At scale 0.5 each 2 x 2 block becomes its mean; Pillow rounds once for rows and columns."""
    image = pictures(1)
    found = digital.pixelate(image, 0.5, generator=generator())[0]
    blocks = image[0].reshape(16, 2, 16, 2, 3).mean((1, 3))
    expected = blocks.repeat(2, axis=0).repeat(2, axis=1)
    assert np.abs(found - expected).max() <= 0.5 + 0.5


def test_jpeg_is_pillows() -> None:
    image = pictures(1)
    file = io.BytesIO()
    Image.fromarray(image[0]).save(file, format="JPEG", quality=40)
    expected = np.asarray(Image.open(io.BytesIO(file.getvalue())))
    np.testing.assert_array_equal(
        digital.jpeg_compression(image, 40, generator=generator())[0], expected
    )


def test_elastic_without_displacement_is_an_affine_map() -> None:
    """alpha 0: only the three points move; OpenCV's map of the same points."""
    image = pictures(1)
    found = digital.elastic_transform(image, 0.0, 0.0, 2.56, generator=generator(4))[0]
    draws = generator(4).uniform(-2.56, 2.56, (3, 2)).astype(np.float32)
    points = np.array([[26, 26], [26, 6], [6, 6]], np.float32)
    matrix = cv2.getAffineTransform(points, points + draws)
    numbers = (image[0] / 255).astype(np.float32)
    expected = cv2.warpAffine(numbers, matrix, (32, 32), borderMode=cv2.BORDER_REFLECT_101)
    assert close(found, np.asarray(expected) * 255)


def test_elastic_moves_pixels_by_at_most_alpha() -> None:
    """On a ramp, a pixel's value is where it came from."""
    ramp = (np.arange(32) * 8).astype(np.uint8)
    image = np.broadcast_to(ramp[None, None, :, None], (1, 32, 32, 3)).copy()
    moved = (
        digital.elastic_transform(image, 3.2, 0.96, 0.0, generator=generator())[0].astype(int)
        - image[0]
    )
    inner = moved[:, 4:-4] / 8
    assert 0.2 < np.abs(inner).max() <= 3.3


def test_spatter_is_brown_or_turquoise() -> None:
    water = weather.spatter(flat(0, 4), *PARAMETERS[32]["spatter"][2], generator=generator())
    wet = water[water.sum(-1) > 60]
    assert len(wet)
    assert (wet[:, 2] >= wet[:, 0]).all()
    mud = weather.spatter(flat(255, 4), *PARAMETERS[32]["spatter"][4], generator=generator())
    dark = mud[mud.sum(-1) < 300]
    assert len(dark)
    assert (dark[:, 0] >= dark[:, 2]).all()
