from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from published import random_images, write_row_sheets

from realistic_tta.cli.main import main
from realistic_tta.data.cifar_c import open_cifar_c
from realistic_tta.data.registry import CIFAR10_CLASSES, EXTRA_CORRUPTIONS

LABELS = list(range(10)) * 2


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clean images where the command is told to look; its cache stays in the test's folder."""
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "data"))
    return write_row_sheets(tmp_path / "sheets", random_images(20), LABELS)


def run(source: Path, out: Path, *more: str) -> int:
    common = ["corrupt", "cifar10", "--source", str(source), "--out", str(out), "--workers", "1"]
    return main([*common, *more])


def test_what_it_writes_is_read_by_the_loader(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert (
        run(source, out, "--severities", "2,5", "--corruptions", "fog,contrast", "--images", "8")
        == 0
    )
    printed = capsys.readouterr()
    assert printed.out.strip() == str(out)
    assert "fog" in printed.err
    assert "generated fog" in printed.err
    stored = open_cifar_c(out, CIFAR10_CLASSES, corruptions=("fog", "contrast"))
    assert stored.severities == (2, 5)
    part = stored.part("fog", 5)
    assert part.images.shape == (8, 32, 32, 3)
    assert part.labels.tolist() == LABELS[:8]
    assert np.any(part.images != stored.part("fog", 2).images)


def test_the_extra_corruptions_by_one_word(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(source, out, "--severities", "5", "--corruptions", "extra", "--images", "2") == 0
    assert {file.stem for file in out.glob("*.npy")} == {*EXTRA_CORRUPTIONS, "labels"}


def test_skipped_images_are_left_out(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["--severities", "5", "--corruptions", "clean", "--skip", "14"]
    assert run(source, out, *words) == 0
    part = open_cifar_c(out, CIFAR10_CLASSES, corruptions=("clean",)).part("clean", 5)
    np.testing.assert_array_equal(part.images, random_images(20)[14:])
    assert part.labels.tolist() == LABELS[14:]
    assert run(source, tmp_path / "few", *words, "--images", "2") == 0
    few = open_cifar_c(tmp_path / "few", CIFAR10_CLASSES, corruptions=("clean",))
    assert few.labels.tolist() == LABELS[14:16]
    assert run(source, out, *words, "--images", "7") == 2
    assert "20 images; expected more for --skip 14 --images 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--severities", "five"), '"five"; expected integers'),
        (("--severities", "6"), "severity is 6; expected 1, 2, 3, 4 or 5"),
        (("--corruptions", "fogg"), 'unknown corruption "fogg"; did you mean "fog"'),
    ],
)
def test_wrong_words_are_answered_and_nothing_is_written(
    source: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    answer: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(source, tmp_path / "out", *words) == 2
    assert answer in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_photographs_become_imagenet_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photographs = tmp_path / "val"
    photographs.mkdir()
    for label in range(3):
        Image.fromarray(random_images(1, 224)[0]).save(photographs / f"{label:04d}.png")
    words = ["--severities", "3", "--corruptions", "pixelate", "--images", "2", "--workers", "1"]
    assert main(["corrupt", "imagenet", "--out", str(tmp_path / "out"), *words]) == 2
    assert "imagenet requires --source" in capsys.readouterr().err
    where = ["--source", str(photographs), "--out", str(tmp_path / "out")]
    assert main(["corrupt", "imagenet", *where, *words]) == 0
    written = sorted(str(f.relative_to(tmp_path / "out")) for f in tmp_path.rglob("*.JPEG"))
    assert written == ["pixelate/3/0000/0000.JPEG", "pixelate/3/0001/0001.JPEG"]
    folders = list((tmp_path / "out/pixelate/3").iterdir())
    assert len(folders) == 1000, "a label is the rank of its folder"
    where[-1] = str(tmp_path / "rest")
    words = ["--severities", "3", "--corruptions", "clean", "--skip", "2", "--workers", "1"]
    assert main(["corrupt", "imagenet", *where, *words]) == 0
    (only,) = (tmp_path / "rest").rglob("*.JPEG")
    assert str(only.relative_to(tmp_path / "rest")) == "clean/3/0002/0002.JPEG"
