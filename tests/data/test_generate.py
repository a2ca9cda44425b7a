from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from data.pictures import pictures

from realistic_tta import OptionError
from realistic_tta.data.corruptions import corrupt
from realistic_tta.data.generate import PIECE, Progress, generate

NAMES = ("contrast", "gaussian_noise", "frost")


def labels(count: int) -> np.ndarray:
    return np.arange(count) % 10


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_layout_is_that_of_cifar_10_c(tmp_path: Path) -> None:
    """One file a corruption, severities one after another, labels repeated; nothing else."""
    images = pictures(6)
    generate(images, labels(6), tmp_path, names=NAMES, severities=(1, 5))
    assert sorted(contents(tmp_path)) == sorted(
        [*(f"{name}.npy" for name in NAMES), "labels.npy", "corruptions.json"]
    )
    stored = np.load(tmp_path / "contrast.npy")
    assert stored.shape == (12, 32, 32, 3)
    for place, severity in enumerate((1, 5)):
        expected = corrupt(images, "contrast", severity, np.random.default_rng(0))
        np.testing.assert_array_equal(stored[place * 6 : place * 6 + 6], expected)
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), np.tile(labels(6), 2))
    assert json.loads((tmp_path / "corruptions.json").read_text())["severities"] == [1, 5]


def test_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    images = pictures(PIECE + 30)
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        generate(images, labels(len(images)), folder, names=NAMES, severities=(5,), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    other = tmp_path / "other"
    generate(images, labels(len(images)), other, names=NAMES, severities=(5,), seed=1)
    assert contents(other)["gaussian_noise.npy"] != contents(tmp_path / "1")["gaussian_noise.npy"]


def test_what_is_complete_is_not_made_again(tmp_path: Path) -> None:
    images, made = pictures(4), list[Progress]()
    generate(images, labels(4), tmp_path, names=NAMES[:1], severities=(5,), report=made.append)
    generate(images, labels(4), tmp_path, names=NAMES, severities=(5,), report=made.append)
    assert [progress.name for progress in made] == list(NAMES)


def _slowly(folder: str) -> None:
    """Runs in a process that will be killed: pauses after every piece."""
    generate(
        pictures(3 * PIECE),
        labels(3 * PIECE),
        Path(folder),
        names=NAMES,
        severities=(5,),
        report=lambda _: time.sleep(0.3),
    )


def children(parent: int) -> list[int]:
    """Processes below this one, from the kernel's own list."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == parent:
                found.append(int(status.parent.name))
    return found


def ended(processes: list[int], seconds: float = 10) -> bool:
    """Whether all of them are gone, or will be soon."""
    for _ in range(int(seconds * 10)):
        if not any(Path(f"/proc/{process}").exists() for process in processes):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killed_at_any_moment_the_same_call_resumes(tmp_path: Path) -> None:
    images = pictures(3 * PIECE)
    generate(images, labels(len(images)), tmp_path / "whole", names=NAMES, severities=(5,))
    broken = tmp_path / "broken"
    for name, pause in ((NAMES[0], 0.5), (NAMES[1], 1.0)):  # killed while at work on each
        process = multiprocessing.get_context("spawn").Process(target=_slowly, args=(str(broken),))
        process.start()
        assert process.pid
        while not (broken / f"{name}.partial").exists() or not children(process.pid):
            assert process.is_alive()
            time.sleep(0.05)
        time.sleep(pause)
        workers = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert ended(workers)
        assert not (broken / f"{NAMES[2]}.npy").exists()
    generate(images, labels(len(images)), broken, names=NAMES, severities=(5,))
    assert contents(broken) == contents(tmp_path / "whole")


def test_a_folder_that_holds_another_set_is_refused(tmp_path: Path) -> None:
    generate(pictures(4), labels(4), tmp_path, names=NAMES[:1], severities=(5,))
    before = contents(tmp_path)
    with pytest.raises(OptionError, match=r"corruptions.json shows that the folder holds"):
        generate(pictures(4), labels(4), tmp_path, names=NAMES[:1], severities=(4,))
    with pytest.raises(OptionError, match="4 images came with 3 labels"):
        generate(pictures(4), labels(3), tmp_path)
    with pytest.raises(OptionError, match="unknown corruption"):
        generate(pictures(4), labels(4), tmp_path / "new", names=("fgo",))
    assert contents(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_clean_images_are_added_to_a_folder_as_published(tmp_path: Path) -> None:
    """It has labels and no description; other labels are refused, and stay."""
    images = pictures(4)
    np.save(tmp_path / "labels.npy", np.tile(labels(4), 5))
    with pytest.raises(OptionError, match=r"labels.npy holds other labels"):
        generate(images, labels(4)[::-1], tmp_path, names=("clean",))
    assert [file.name for file in tmp_path.iterdir()] == ["labels.npy"]
    generate(images, labels(4), tmp_path, names=("clean",))
    np.testing.assert_array_equal(np.load(tmp_path / "clean.npy"), np.tile(images, (5, 1, 1, 1)))


def test_a_piece_that_fails_leaves_no_file_under_the_final_name(tmp_path: Path) -> None:
    """Images of a size without published parameters are refused by the worker."""
    with pytest.raises(OptionError, match="64 x 64 pixels"):
        generate(pictures(4, 64), labels(4), tmp_path, names=NAMES[:1], severities=(5,))
    assert not (tmp_path / "contrast.npy").exists()
