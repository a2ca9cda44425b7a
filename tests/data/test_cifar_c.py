from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import published
import pytest

from realistic_tta.data.cifar_c import CorruptedArrays, open_cifar_c
from realistic_tta.data.images import LabeledImages
from realistic_tta.data.registry import CIFAR10_CLASSES, CORRUPTIONS
from realistic_tta.errors import DataError


def opened(source: Path) -> CorruptedArrays:
    return open_cifar_c(source, CIFAR10_CLASSES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published.write_cifar_c(tmp_path / "CIFAR-10-C")


def assert_whole(found: CorruptedArrays) -> None:
    """Every part is its block of its file."""
    assert tuple(found.arrays) == CORRUPTIONS
    for seed, corruption in enumerate(CORRUPTIONS):
        stacked = published.random_images(20, seed=seed).reshape(5, 4, 32, 32, 3)
        for severity in range(1, 6):
            part: LabeledImages = found.part(corruption, severity)
            np.testing.assert_array_equal(part.take(np.arange(4)), stacked[severity - 1])
            assert part.labels.tolist() == [0, 1, 2, 3]
            assert part.classes == CIFAR10_CLASSES


def test_severities_are_blocks_of_each_file(folder: Path) -> None:
    assert_whole(opened(folder))


def test_the_archive_is_read_in_place(folder: Path, tmp_path: Path) -> None:
    """Members begin at odd places; nothing is unpacked, nothing is read before it is asked for."""
    archive = published.pack(folder, tmp_path / "CIFAR-10-C.tar")
    shutil.rmtree(folder)
    found = opened(archive)
    assert_whole(found)
    assert isinstance(found.arrays["fog"], np.memmap)
    assert list(tmp_path.iterdir()) == [archive]


def test_the_folder_around_it_will_do(folder: Path, tmp_path: Path) -> None:
    assert_whole(opened(folder.parent))
    published.pack(folder, tmp_path / "CIFAR-10-C.tar")
    shutil.rmtree(folder)
    assert_whole(opened(tmp_path))


def test_only_the_corruptions_asked_for_are_required(folder: Path) -> None:
    """Published sets have no clean images: the error says how to make them."""
    (folder / "snow.npy").unlink()
    found = open_cifar_c(folder, CIFAR10_CLASSES, corruptions=("fog",))
    assert tuple(found.arrays) == ("fog",)
    told = "clean.npy is missing.*`rtta corrupt DATASET --corruptions clean --out FOLDER` adds"
    with pytest.raises(DataError, match=told):
        open_cifar_c(folder, CIFAR10_CLASSES, corruptions=("clean",))


def test_a_set_with_one_severity_says_so_itself(tmp_path: Path) -> None:
    folder = published.write_cifar_c(tmp_path / "set", images=10, severities=1)
    (folder / "corruptions.json").write_text(json.dumps({"severities": [5], "images": 10}))
    for source in (folder, published.pack(folder, tmp_path / "set.tar")):
        found = opened(source)
        assert found.severities == (5,)
        assert len(found.part("fog", 5)) == 10
        with pytest.raises(DataError, match=r"severity 4 is not in this set; expected one of \(5,"):
            found.part("fog", 4)


def test_severities_may_come_in_any_order(tmp_path: Path) -> None:
    folder = published.write_cifar_c(tmp_path / "set", images=4, severities=2)
    (folder / "corruptions.json").write_text(json.dumps({"severities": [5, 3], "images": 4}))
    part = opened(folder).part("gaussian_noise", 3)
    np.testing.assert_array_equal(part.images, published.random_images(8, seed=0)[4:])


def test_fewer_corruptions_may_be_asked_for(folder: Path) -> None:
    (folder / "snow.npy").unlink()
    found = open_cifar_c(folder, CIFAR10_CLASSES, corruptions=("fog", "frost"))
    assert len(found.part("frost", 1)) == 4
    with pytest.raises(DataError, match='unknown corruption "frog"; did you mean "fog"'):
        found.part("frog", 1)


def test_a_missing_corruption_is_named_with_what_is_there(folder: Path, tmp_path: Path) -> None:
    (folder / "snow.npy").unlink()
    for source in (folder, published.pack(folder, tmp_path / "CIFAR-10-C.tar")):
        with pytest.raises(DataError, match=r"snow.npy is missing; found brightness.npy"):
            opened(source)


def test_a_file_that_ends_too_early_is_named(folder: Path) -> None:
    path = folder / "fog.npy"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"fog.npy: truncated: found 61,468 bytes, expected 61,568"):
        opened(folder)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"fog.npy: 0 bytes, not an .npy file"):
        opened(folder)


def test_an_archive_that_ends_too_early_is_named(folder: Path, tmp_path: Path) -> None:
    archive = published.pack(folder, tmp_path / "CIFAR-10-C.tar")
    whole = archive.read_bytes()
    for length in (len(whole) // 2, 100):
        archive.write_bytes(whole[:length])
        with pytest.raises(DataError, match=rf"CIFAR-10-C.tar: .*{length:,} bytes"):
            opened(archive)


WRONG: list[tuple[str, object, str]] = [
    ("fog.npy", np.zeros((20, 32, 32), np.uint8), r"found \(20, 32, 32\) uint8"),
    (
        "fog.npy",
        np.zeros((19, 32, 32, 3), np.uint8),
        r"found \(19, 32, 32, 3\) uint8; expected \(20,",
    ),
    ("fog.npy", np.zeros((20, 32, 32, 3), np.float32), "float32; expected .* uint8"),
    ("fog.npy", np.array([{}]), "holds Python objects; expected numbers"),
    ("labels.npy", np.zeros(15, np.int64), r"gaussian_noise.npy: found \(20,.*expected \(15,"),
    ("labels.npy", np.zeros(19, np.int64), "19 labels; expected a multiple of 5"),
    ("labels.npy", np.zeros(0, np.int64), "an empty array"),
    ("labels.npy", np.full(20, 10), "labels from 10 to 10; expected 0 to 9"),
    ("labels.npy", np.zeros(20), r"found \(20,\) float64; expected \(labels,\) of integers"),
]


@pytest.mark.parametrize(("file", "array", "words"), WRONG)
def test_what_is_wrong_is_named(file: str, array: object, words: str, folder: Path) -> None:
    np.save(folder / file, np.asarray(array), allow_pickle=True)
    with pytest.raises(DataError, match=words) as raised:
        opened(folder)
    assert str(folder) in str(raised.value)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ("{", "corruptions.json: found"),
        ('{"images": 4}', 'expected for example {"severities": '),
        (
            '{"severities": [6], "images": 20}',
            r"severities \(6,\); expected some of \(1, 2, 3, 4, 5",
        ),
        ('{"severities": [5, 5], "images": 10}', r"severities \(5, 5\); expected"),
        ('{"severities": [5], "images": 10}', "20 labels; expected 1 severities x 10 images = 10"),
    ],
)
def test_a_note_that_does_not_fit_is_named(about: str, words: str, folder: Path) -> None:
    (folder / "corruptions.json").write_text(about)
    with pytest.raises(DataError, match=words):
        opened(folder)


def test_nothing_there_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder; expected a CIFAR-C set"):
        opened(tmp_path / "none")
    with pytest.raises(DataError, match=r"found none of these; expected labels.npy"):
        opened(tmp_path)


def test_two_sets_in_one_folder_are_not_guessed_at(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "other")
    with pytest.raises(DataError, match="found CIFAR-10-C, other; expected"):
        opened(tmp_path)
