from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data.pictures import pictures
from PIL import Image

from realistic_tta import DataError, OptionError
from realistic_tta.data.corruptions import corrupt
from realistic_tta.data.generate import PHOTOGRAPH_PIECE, Progress, generate_photographs
from realistic_tta.data.imagenet import Photographs, open_imagenet, read_photograph
from realistic_tta.data.imagenet_c import open_imagenet_c

WNIDS = ("n01", "n02", "n03")


def class_folders(root: Path, each: int = 2) -> Path:
    """Photographs of 224 px, losslessly, so that what is read is what was written."""
    for number, wnid in enumerate(WNIDS):
        (root / wnid).mkdir(parents=True)
        for place, image in enumerate(pictures(each, 224, seed=number)):
            Image.fromarray(image).save(root / wnid / f"photo_{place}.png")
    return root


def test_a_folder_a_class(tmp_path: Path) -> None:
    photographs = open_imagenet(class_folders(tmp_path / "val"))
    assert photographs.classes == WNIDS
    assert photographs.labels.tolist() == [0, 0, 1, 1, 2, 2]
    taken = photographs.take(np.array([3, 0]))
    np.testing.assert_array_equal(taken[0], pictures(2, 224, seed=1)[1])
    assert taken.shape == (2, 224, 224, 3)


def test_files_named_by_their_label(tmp_path: Path) -> None:
    for label in (7, 999):
        Image.fromarray(pictures(1, 224)[0]).save(tmp_path / f"{label:04d}.jpg")
    photographs = open_imagenet(tmp_path)
    assert photographs.labels.tolist() == [7, 999]
    assert len(photographs.classes) == 1000


@pytest.mark.parametrize("size", [(512, 256), (300, 400), (100, 80)])
def test_other_sizes_are_cut_to_the_middle(tmp_path: Path, size: tuple[int, int]) -> None:
    """On a gradient from left to right, the middle of the result is the middle's value."""
    width, height = size
    ramp = np.linspace(0, 255, width).astype(np.uint8)
    image = np.broadcast_to(ramp[None, :, None], (height, width, 3))
    Image.fromarray(np.ascontiguousarray(image)).save(tmp_path / "ramp.png")
    found = read_photograph(tmp_path / "ramp.png")
    assert found.shape == (224, 224, 3)
    assert found[:, 110:114].mean() == pytest.approx(127, abs=2)
    shown = 224 / (width * 256 / min(size)) * 255  # levels from edge to edge of the cut
    assert float(found[0, -1, 0]) - float(found[0, 0, 0]) == pytest.approx(shown, abs=4)


def test_wrong_folders_are_answered(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        open_imagenet(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no photograph found; expected a folder per class"):
        open_imagenet(tmp_path)
    (tmp_path / "cat.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"cat.jpg: the name is not a label"):
        open_imagenet(tmp_path)
    with pytest.raises(DataError, match=r"cat.jpg: not a readable image"):
        read_photograph(tmp_path / "cat.jpg")


def test_what_is_written_is_read_as_imagenet_c(tmp_path: Path) -> None:
    """The published layout, the corruption in it, the clean labels; resumed folder by folder."""
    photographs = open_imagenet(class_folders(tmp_path / "val"))
    out, made = tmp_path / "out", list[Progress]()
    for severities in ((5,), (3, 5)):  # the second call makes severity 3 alone
        generate_photographs(
            photographs, out, names=("contrast", "fog"), severities=severities, report=made.append
        )
    assert [progress.name for progress in made] == [
        "contrast, severity 5",
        "fog, severity 5",
        "contrast, severity 3",
        "fog, severity 3",
    ]
    index = {wnid: label for label, wnid in enumerate(WNIDS)}
    stored = open_imagenet_c(out, class_index=index, corruptions=("contrast", "fog"))
    part = stored.part("contrast", 5)
    assert part.labels.tolist() == photographs.labels.tolist()
    clean = photographs.take(np.arange(6))
    expected = corrupt(clean, "contrast", 5, np.random.default_rng(0)).astype(int)
    assert np.abs(part.take(np.arange(6)) - expected).mean() < 3  # JPEG of quality 85
    assert not list(out.rglob("*.partial"))


def test_photographs_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    photographs = open_imagenet(class_folders(tmp_path / "val", each=PHOTOGRAPH_PIECE // 2))
    found = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        generate_photographs(
            photographs, out, names=("shot_noise",), severities=(1,), workers=workers
        )
        found.append({str(f.relative_to(out)): f.read_bytes() for f in out.rglob("*.JPEG")})
    assert found[0] == found[1]
    assert len(found[0]) == len(photographs)


def test_a_folder_of_other_photographs_or_another_seed_is_refused(tmp_path: Path) -> None:
    """What is there already would be taken for a part of the new set."""
    photographs = open_imagenet(class_folders(tmp_path / "val"))
    few = Photographs(photographs.files[:2], photographs.labels[:2], photographs.classes)
    out = tmp_path / "out"
    generate_photographs(few, out, names=("contrast",), severities=(5,))
    for other, seed in ((photographs, 0), (few, 1)):
        with pytest.raises(OptionError, match="shows that the folder holds"):
            generate_photographs(other, out, names=("fog",), severities=(5,), seed=seed)
    assert not (out / "fog").exists()


def test_wrong_names_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    photographs = open_imagenet(class_folders(tmp_path / "val"))
    with pytest.raises(OptionError, match="unknown corruption"):
        generate_photographs(photographs, tmp_path / "out", names=("fgo",))
    with pytest.raises(OptionError, match="severity is 9"):
        generate_photographs(photographs, tmp_path / "out", severities=(9,))
    assert not (tmp_path / "out").exists()
