"""Batches, manifests, and going on in the middle."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from published import random_images

from realistic_tta.benchmark.manifest import manifest, short_hash
from realistic_tta.benchmark.orderings import Part
from realistic_tta.benchmark.scenarios import SCENARIOS, StreamPlan
from realistic_tta.benchmark.stream import Stream, StreamBatch
from realistic_tta.data.cifar_c import open_cifar_c
from realistic_tta.data.images import Images
from realistic_tta.data.registry import CLEAN
from realistic_tta.errors import DataError, OptionError

NAMES = ("fog", "snow", "frost")
COUNT = 11
CLASSES = ("cat", "dog", "frog")


def contents(seed: int = 0) -> list[Images]:
    labels = np.arange(COUNT, dtype=np.int64) % 3
    return [Images(random_images(COUNT, 4, 10 * seed + i), labels, CLASSES) for i in range(3)]


def stream_of(scenario: str, seed: int = 1, images: int | None = None) -> Stream:
    parts = SCENARIOS[scenario].parts(NAMES)
    by_name = dict(zip((*NAMES, CLEAN), [*contents(), contents()[0]], strict=True))
    shown = [by_name[part.corruption] for part in parts]
    return Stream(StreamPlan(scenario, seed=seed, images=images), parts, shown)


def equal(first: StreamBatch, second: StreamBatch) -> bool:
    return (
        first.number == second.number
        and first.reset == second.reset
        and torch.equal(first.images, second.images)
        and torch.equal(first.labels, second.labels)
        and np.array_equal(first.parts, second.parts)
    )


@pytest.mark.parametrize("batch_size", [1, 4, 11, 200])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_batches_are_the_images_that_the_ordering_names(scenario: str, batch_size: int) -> None:
    stream = stream_of(scenario)
    place = 0
    images = np.concatenate([loader.images for loader in stream.loaders])
    parts = np.concatenate([loader.parts for loader in stream.loaders])
    for batch in stream.batches(batch_size):
        for image, label, part in zip(batch.images, batch.labels, batch.parts, strict=True):
            source = stream.contents[parts[place]]
            assert part == parts[place]
            assert label == source.labels[images[place]]
            bytes_ = np.moveaxis(source.images[images[place]], 2, 0)
            assert np.array_equal((image * 255).round().numpy(), bytes_)
            assert image.dtype == torch.float32
            place += 1
    assert place == stream.images() == len(images)


def test_the_last_smaller_batch_is_kept_and_none_crosses_a_corruption() -> None:
    sizes = [len(batch.labels) for batch in stream_of("continual").batches(4)]
    assert sizes == [4, 4, 3] * 3
    assert stream_of("continual").count(4) == 9
    for batch in stream_of("continual").batches(4):
        assert len(set(batch.parts.tolist())) == 1
    mixed = [len(batch.labels) for batch in stream_of("mixed").batches(4)]
    assert mixed == [4] * 8 + [1]


@pytest.mark.parametrize(
    ("scenario", "resets"),
    [
        ("continual", []),
        ("gradual", []),
        ("mixed", []),
        ("reset_each_shift", [0, 3, 6]),
        ("episodic", list(range(9))),
    ],
)
def test_resets_come_where_the_setting_says(scenario: str, resets: list[int]) -> None:
    assert [batch.number for batch in stream_of(scenario).batches(4) if batch.reset] == resets


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_stream_can_start_at_any_batch(scenario: str) -> None:
    whole = list(stream_of(scenario).batches(4))
    for start in (0, 1, 3, len(whole) - 1, len(whole)):
        rest = list(stream_of(scenario).batches(4, start))
        assert len(rest) == len(whole) - start
        assert all(map(equal, rest, whole[start:]))


def test_parts_with_other_labels_are_refused() -> None:
    first, second, third = contents()
    other = Images(second.images, second.labels[::-1].copy(), CLASSES)
    parts = [Part(name, 5) for name in NAMES]
    with pytest.raises(
        DataError, match="snow at severity 5 and fog at severity 5 have different labels"
    ):
        Stream(StreamPlan(), parts, [first, other, third])


def test_batch_size_0_is_refused() -> None:
    with pytest.raises(OptionError, match="batch size is 0; expected 1 or more"):
        list(stream_of("continual").batches(0))


def test_the_hash_knows_everything_that_changes_what_is_shown() -> None:
    parts = [Part(name, 5) for name in NAMES]
    changed = contents()
    changed[1].images[0, 0, 0, 0] ^= 1
    facts = [
        manifest("set", stream_of("continual")),
        manifest("other set", stream_of("continual")),
        manifest("set", stream_of("mixed")),
        manifest("set", stream_of("continual", seed=2)),
        manifest("set", stream_of("continual", images=5)),
        manifest("set", Stream(StreamPlan(), parts, changed)),
        manifest("set", Stream(StreamPlan(order="file"), parts, contents())),
        manifest("set", Stream(StreamPlan(), parts[::-1], contents()[::-1])),
    ]
    assert len({short_hash(each) for each in facts}) == len(facts)
    assert manifest("set", stream_of("continual", images=COUNT)) == facts[0]


PROGRAM = """
import sys
from pathlib import Path
from realistic_tta.data.cifar_c import open_cifar_c
from realistic_tta.benchmark.manifest import manifest, short_hash
from realistic_tta.benchmark.scenarios import SCENARIOS, StreamPlan
from realistic_tta.benchmark.stream import Stream
parts = SCENARIOS["gradual"].parts(["fog"])
found = open_cifar_c(Path(sys.argv[1]), "abcdefghij", corruptions=["fog"])
stream = Stream(StreamPlan("gradual"), parts, [found.part(*part) for part in parts])
print(short_hash(manifest("x", stream)))
"""


def test_the_hash_is_the_same_in_another_folder_and_another_process(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    np.save(here / "fog.npy", random_images(20))
    np.save(here / "labels.npy", np.tile(np.arange(4), 5))
    shutil.copytree(here, tmp_path / "there")
    parts = SCENARIOS["gradual"].parts(["fog"])
    found = open_cifar_c(here, tuple("abcdefghij"), corruptions=["fog"])
    stream = Stream(StreamPlan("gradual"), parts, [found.part(*part) for part in parts])
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", PROGRAM, str(tmp_path / "there")],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    )
    assert ran.stdout.strip() == short_hash(manifest("x", stream))
