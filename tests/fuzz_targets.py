"""Every loader of files, each with a small good file: what test_fuzz.py and tools/fuzz.py mutate.

A loader takes the file's bytes and a folder of its own. It may return anything, and raise nothing
but the package's own errors.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import published
import torch
from bench_subjects import record
from PIL import Image
from safetensors.torch import save
from subjects import convolutional

import realistic_tta
from realistic_tta.benchmark import checkpoints
from realistic_tta.benchmark.experiment import read_grids
from realistic_tta.benchmark.exports import to_csv
from realistic_tta.benchmark.metrics import Metrics
from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.traces import Trace, TracePoint, read_trace
from realistic_tta.data.archives import list_files, unpack
from realistic_tta.data.cifar import read_tile_sheets
from realistic_tta.data.cifar_batches import read_cifar10_batches
from realistic_tta.data.cifar_c import open_cifar_c
from realistic_tta.data.decode import decode_rgb
from realistic_tta.data.imagenet_c import open_imagenet_c, read_list
from realistic_tta.data.registry import CIFAR10_CLASSES
from realistic_tta.errors import RealisticTTAError
from realistic_tta.models.checkpoints import load_weights
from realistic_tta.models.keras_weights import read_keras_tensors
from realistic_tta.report.page import page

IMAGES, LABELS = published.random_images(10), [n % 10 for n in range(10)]
PICTURES = ("png", "jpeg", "webp")


class Target(NamedTuple):
    """good: a file that is read without an error. load: reads the file, in a folder of its own."""

    good: Callable[[], bytes]
    load: Callable[[bytes, Path], object]


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def load_stored(name: str, content: bytes, folder: Path) -> object:
    """A CIFAR-C set of which one file is the given one."""
    files = {"labels.npy": npy(LABELS), "fog.npy": npy(IMAGES)}
    for each, good in (files | {name: content}).items():
        put(folder, each, good)
    return open_cifar_c(folder, CIFAR10_CLASSES, corruptions=["fog"]).part("fog", 5).digest()


def tar(mode: str, names: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in names.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def load_archive(content: bytes, folder: Path) -> object:
    path = put(folder, "a.tar", content)
    found = list_files(path)
    before = {name: found.read(name) for name in found.names}
    unpack(path, folder / "out")
    return before


def load_stored_archive(content: bytes, folder: Path) -> object:
    path = put(folder, "CIFAR-10-C.tar", content)
    return open_cifar_c(path, CIFAR10_CLASSES, corruptions=["fog"]).part("fog", 5).digest()


def load_imagenet(content: bytes, folder: Path) -> object:
    put(folder, "weather.tar", content)
    index = {"n01440764": 0}
    part = open_imagenet_c(folder, class_index=index, corruptions=["fog"]).part("fog", 5)
    return part.take(np.arange(len(part)))


def load_batches(content: bytes, folder: Path) -> object:
    place = published.write_cifar10(folder / "cifar-10-batches-py", IMAGES, LABELS)
    put(place, "test_batch", content)
    return read_cifar10_batches(list_files(place), "test").digest()


def load_labels(content: bytes, folder: Path) -> object:
    sheet = io.BytesIO()
    Image.new("RGB", (320, 32)).save(sheet, "png")
    put(folder, "test_0.png", sheet.getvalue())
    put(folder, "classes.json", json.dumps(CIFAR10_CLASSES).encode())
    put(folder, "test_labels.json", content)
    return read_tile_sheets(list_files(folder), "test").digest()


def load_list(content: bytes, folder: Path) -> object:
    return read_list(put(folder, "list.txt", content))


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(file, kind)
    return file.getvalue()


def load_picture(content: bytes, _: Path) -> object:
    return np.asarray(decode_rgb(content, "picture")).sum()


def weights(*, zipped: bool) -> bytes:
    file = io.BytesIO()
    torch.save(convolutional().state_dict(), file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def load_checkpoint(ending: str, content: bytes, folder: Path) -> object:
    return load_weights(convolutional(), put(folder, f"weights.{ending}", content))


KERAS = {"paths": ["shard"], "weights": [{"name": "a/kernel", "shape": [2, 2], "dtype": "float32"}]}


def load_keras(content: bytes, folder: Path) -> object:
    put(folder, "shard", bytes(16))
    return read_keras_tensors(put(folder, "model.json", content))


def load_record(content: bytes, folder: Path) -> object:
    """Read, exported, and shown on a page."""
    results = Results(folder)
    put(folder, "records/a.json", content)
    records = results.read()
    return to_csv(records), page(records, folder, "0").encode()


TRACE = Trace("a", ("1", "4"), (TracePoint(4, (0.5, None), (1.0, 2.0)),))


def load_trace(content: bytes, folder: Path) -> object:
    put(folder, "traces/a.json", content)
    return read_trace("a", folder), load_record(record().to_json().encode(), folder)


def load_schema(content: bytes, folder: Path) -> object:
    put(folder, "schema.json", content)
    return Results(folder).read()


def load_grid(content: bytes, folder: Path) -> object:
    return [each.experiments() for each in read_grids(put(folder, "grid.toml", content))]


TOML = b"""datasets = "cifar10-c-sample"
methods = ["tbn", "tema"]
batch_sizes = [4, 1]

[hyperparameters.tema]
momentum = 0.1
"""


@functools.cache
def good_state() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "a.safetensors"
        checkpoints.save(place, realistic_tta.adapt(convolutional(), "tema"), Metrics.start(4, 2))
        return place.read_bytes()


def load_state(content: bytes, folder: Path) -> object:
    adapted = realistic_tta.adapt(convolutional(), "tema")
    return checkpoints.restore(put(folder, "a.safetensors", content), adapted)


def load_resealed_state(content: bytes, folder: Path) -> object:
    """The file with a valid checksum, as somebody would write it who wants it to be read."""
    start = content.find(b'"checksum":"') + len(b'"checksum":"')
    blank = content[:start] + b"0" * 64 + content[start + 64 :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return load_state(blank[:start] + digest + blank[start + 64 :], folder)


MEMBERS = {"a/one": b"1" * 700, "a/two": b"2"}
SET = {"CIFAR-10-C/labels.npy": npy(LABELS), "CIFAR-10-C/fog.npy": npy(IMAGES)}
JPEG = {"fog/5/n01440764/val_0.JPEG": published.jpeg(1)}

TARGETS: dict[str, Target] = {
    "labels.npy": Target(lambda: npy(LABELS), functools.partial(load_stored, "labels.npy")),
    "images.npy": Target(lambda: npy(IMAGES), functools.partial(load_stored, "fog.npy")),
    "corruptions.json": Target(
        lambda: b'{"severities": [5], "images": 10}',
        functools.partial(load_stored, "corruptions.json"),
    ),
    "tar": Target(lambda: tar("w", MEMBERS), load_archive),
    "tar.gz": Target(lambda: tar("w:gz", MEMBERS), load_archive),
    "tar.bz2": Target(lambda: tar("w:bz2", MEMBERS), load_archive),
    "tar.xz": Target(lambda: tar("w:xz", MEMBERS), load_archive),
    "cifar-c tar": Target(lambda: tar("w", SET), load_stored_archive),
    "imagenet-c tar": Target(lambda: tar("w", JPEG), load_imagenet),
    "cifar batch": Target(lambda: published.batch(IMAGES, LABELS), load_batches),
    "labels.json": Target(lambda: json.dumps(LABELS).encode(), load_labels),
    "image list": Target(lambda: b"n01440764/val_0.JPEG 0\n", load_list),
    **{kind: Target(functools.partial(picture, kind), load_picture) for kind in PICTURES},
    "checkpoint": Target(
        functools.partial(weights, zipped=True), functools.partial(load_checkpoint, "pt")
    ),
    "old checkpoint": Target(
        functools.partial(weights, zipped=False), functools.partial(load_checkpoint, "pt")
    ),
    "safetensors": Target(
        lambda: save(convolutional().state_dict()),
        functools.partial(load_checkpoint, "safetensors"),
    ),
    "keras model.json": Target(
        lambda: json.dumps({"weightsManifest": [KERAS]}).encode(), load_keras
    ),
    "record": Target(lambda: record().to_json().encode(), load_record),
    "trace": Target(lambda: TRACE.to_json().encode(), load_trace),
    "schema.json": Target(lambda: b'{"schema": 3}', load_schema),
    "toml grid": Target(lambda: TOML, load_grid),
    "checkpoints run": Target(good_state, load_state),
    "checkpoints run, resealed": Target(good_state, load_resealed_state),
}


def run(target: Target, content: bytes, folder: Path) -> bool:
    """Whether the file was taken; False if it was refused, as it should be. Leaves nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        target.load(content, folder)
    except RealisticTTAError:
        return False
    else:
        return True
    finally:
        shutil.rmtree(folder)
