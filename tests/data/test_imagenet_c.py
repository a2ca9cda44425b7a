from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import published
import pytest

from realistic_tta.data.imagenet_c import CorruptedFiles, open_imagenet_c
from realistic_tta.data.images import LabeledImages
from realistic_tta.errors import DataError

CORRUPTIONS = ("fog", "contrast")
CLASS_INDEX = {"n01440764": 0, "n01443537": 1, "n01484850": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published.write_imagenet_c(tmp_path / "imagenet-c", CORRUPTIONS)


def opened(source: Path, listed: Path | None = None) -> CorruptedFiles:
    return open_imagenet_c(source, listed=listed, class_index=CLASS_INDEX, corruptions=CORRUPTIONS)


def assert_whole(found: CorruptedFiles) -> None:
    """Each part holds its own six images, each with the label of its folder."""
    for number, corruption in enumerate(CORRUPTIONS):
        for severity in (1, 5):
            part = found.part(corruption, severity)
            assert part.labels.tolist() == [0, 0, 1, 1, 2, 2]
            assert part.classes == tuple(CLASS_INDEX)
            images = part.take(np.arange(len(part)))
            assert images.shape == (6, 224, 224, 3)
            shades = [
                published.shade_of(number, severity, label, image)
                for label in range(3)
                for image in range(2)
            ]
            np.testing.assert_allclose(images[:, 0, 0, 0], shades, atol=1)


def archives_of(folder: Path, target: Path) -> Path:
    """Each corruption in an archive of its own, as the groups are published."""
    target.mkdir()
    for corruption in CORRUPTIONS:
        published.pack(folder / corruption, target / f"{corruption}_group.tar")
    return target


def test_folders_are_read_as_published(folder: Path) -> None:
    assert_whole(opened(folder))


def test_group_folders_will_do(folder: Path, tmp_path: Path) -> None:
    for corruption in CORRUPTIONS:
        (tmp_path / "groups" / f"{corruption}_group").mkdir(parents=True)
        (folder / corruption).rename(tmp_path / "groups" / f"{corruption}_group" / corruption)
    assert_whole(opened(tmp_path / "groups"))


def test_archives_are_read_in_place(folder: Path, tmp_path: Path) -> None:
    archives = archives_of(folder, tmp_path / "archives")
    shutil.rmtree(folder)
    assert_whole(opened(archives))
    assert len(list(archives.iterdir())) == 2


@pytest.mark.parametrize("prefix", ["", "fog/5/"])
def test_a_list_chooses_images_and_their_order(folder: Path, tmp_path: Path, prefix: str) -> None:
    """One relative path a line; what stands before wnid/name does not matter."""
    listed = tmp_path / "list.txt"
    listed.write_text(f"{prefix}n01484850/val_1.JPEG\n\n{prefix}n01440764/val_0.JPEG\n")
    for source in (folder, archives_of(folder, tmp_path / "archives")):
        part = opened(source, listed).part("fog", 5)
        assert part.labels.tolist() == [2, 0]
        shades = [published.shade_of(0, 5, 2, 1), published.shade_of(0, 5, 0, 0)]
        images = part.take(np.array([0, 1]))
        np.testing.assert_allclose(images[:, 9, 9, 1], shades, atol=1)


def test_without_an_index_the_label_is_the_place_among_all_thousand(tmp_path: Path) -> None:
    """Also where the list does not name them all."""
    for number in range(1000):
        inner = tmp_path / "folders" / "fog" / "1" / f"n{number:08}"
        inner.mkdir(parents=True)
        (inner / "val.JPEG").touch()
    (tmp_path / "archives").mkdir()
    published.pack(tmp_path / "folders" / "fog", tmp_path / "archives" / "weather.tar")
    listed = tmp_path / "list.txt"
    listed.write_text("n00000997/val.JPEG\nn00000003/val.JPEG\n")
    for source in (tmp_path / "folders", tmp_path / "archives"):
        found = open_imagenet_c(source, listed=listed, corruptions=("fog",))
        part: LabeledImages = found.part("fog", 1)
        assert part.labels.tolist() == [997, 3]
        assert len(part.classes) == 1000


def test_fewer_classes_need_an_index(folder: Path) -> None:
    found = open_imagenet_c(folder, corruptions=CORRUPTIONS)
    with pytest.raises(DataError, match=r"fog/1: 3 classes; expected 1000.*class index"):
        found.part("fog", 1)
    found = open_imagenet_c(folder, class_index={"n01440764": 0}, corruptions=CORRUPTIONS)
    with pytest.raises(DataError, match="n01443537 is not in the class index given"):
        found.part("fog", 1)


def test_a_missing_corruption_is_named(folder: Path, tmp_path: Path) -> None:
    archives = archives_of(folder, tmp_path / "archives")
    shutil.rmtree(folder / "contrast")
    with pytest.raises(DataError, match="the folder contrast is missing; others are there"):
        opened(folder)
    (archives / "contrast_group.tar").unlink()
    with pytest.raises(DataError, match=r"contrast is missing; found fog, fog_group.tar"):
        opened(archives)
    with pytest.raises(DataError, match="no such folder"):
        opened(tmp_path / "none")


def test_a_published_set_without_clean_images_says_how_to_make_them(folder: Path) -> None:
    assert open_imagenet_c(folder, corruptions=("fog",)).corruptions == ("fog",)
    with pytest.raises(DataError, match=r"clean is missing.*`rtta corrupt DATASET"):
        open_imagenet_c(folder, corruptions=("clean",))


def test_missing_images_are_counted_and_the_first_is_named(folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("n01440764/val_0.JPEG\nn01440764/val_7.JPEG\n")
    found = opened(folder, listed)
    with pytest.raises(DataError, match=r"fog/2: 1 of 2 listed images are missing.*val_7.JPEG"):
        found.part("fog", 2)
    shutil.rmtree(folder / "fog" / "3")
    with pytest.raises(DataError, match=r"fog/3: no images found; expected wnid/name.JPEG"):
        opened(folder).part("fog", 3)


def test_a_list_that_is_none_is_named(folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    with pytest.raises(DataError, match=r"list.txt: no such file"):
        opened(folder, listed)
    listed.write_text("")
    with pytest.raises(DataError, match=r"list.txt: the list is empty"):
        opened(folder, listed)
    listed.write_text("val_0.JPEG\n")
    with pytest.raises(DataError, match=r"found the line 'val_0.JPEG'; expected wnid/name.JPEG"):
        opened(folder, listed)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (published.jpeg(9)[:400], "val_0.JPEG: not a readable image .400 bytes"),
        (b"", "val_0.JPEG: not a readable image .0 bytes"),
        (published.jpeg(9, side=256), "val_0.JPEG: 256 x 256 pixels; expected 224 x 224"),
    ],
)
def test_a_broken_image_is_named_when_it_is_taken(content: bytes, words: str, folder: Path) -> None:
    (folder / "fog" / "1" / "n01443537" / "val_0.JPEG").write_bytes(content)
    part = opened(folder).part("fog", 1)
    assert part.take(np.array([0, 1])).shape == (2, 224, 224, 3)
    with pytest.raises(DataError, match=words):
        part.take(np.array([2]))


def test_a_damaged_archive_is_named(folder: Path, tmp_path: Path) -> None:
    archives = archives_of(folder, tmp_path / "archives")
    path = archives / "fog_group.tar"
    path.write_bytes(path.read_bytes()[:-20_000])
    with pytest.raises(DataError, match=r"fog_group.tar: not a complete tar archive"):
        opened(archives)


def test_a_compressed_archive_is_to_be_unpacked(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "archives").mkdir()
    published.pack(folder / "fog", tmp_path / "archives" / "weather.tar", "w:gz")
    with pytest.raises(DataError, match=r"weather.tar: compressed.*unpack it"):
        opened(tmp_path / "archives")


def test_unknown_parts_are_answered(folder: Path) -> None:
    with pytest.raises(DataError, match='unknown corruption "frog"; did you mean "fog"'):
        opened(folder).part("frog", 1)
    with pytest.raises(DataError, match="severity 6 is not in this set"):
        opened(folder).part("fog", 6)
