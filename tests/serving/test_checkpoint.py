"""adapted.save, load and autosave: the file, its content, and files that are refused.

The contract suite has files of every method and wrapper; tests/test_storage.py has the format.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, residual, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import OptionError, ServedModel, StateError, adapt, load
from realistic_tta.storage import read_tensors, write_tensors


def after(batches: list[Tensor], method: str = "realistic", **options: Any) -> ServedModel:
    adapted = adapt(convolutional(), method, **options)
    for batch in batches:
        adapted(batch)
    return adapted


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small state of rectified_tema after two batches."""
    path = tmp_path / "state"
    after(stream([4, 2]), "rectified_tema").save(path)
    return path


def test_weights_of_the_model_are_not_in_the_file(tmp_path: Path) -> None:
    """The file of rectified_tema on a ResNet is smaller than a tenth of the model."""
    adapted = adapt(residual(), "rectified_tema")
    adapted(images(2, side=32))
    adapted.save(tmp_path / "state")
    model = sum(tensor.nbytes for tensor in residual().state_dict().values())
    assert (tmp_path / "state").stat().st_size < model / 10


class Counting(nn.Module):
    """A model with a state of its own."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()
        with on_cpu():
            self.register_buffer("calls", torch.zeros(()))

    def forward(self, batch: Tensor) -> Tensor:
        self.calls.add_(1)
        outputs: Tensor = self.body(batch) + self.calls
        return outputs


def test_buffers_of_the_models_own_are_part_of_the_state(tmp_path: Path) -> None:
    adapted = adapt(Counting(), "tema")
    adapted(images(3))
    adapted.save(tmp_path / "state")
    again = load(tmp_path / "state", Counting())
    assert torch.equal(again(images(2)), adapted(images(2)))


WRAPPED = {"flip": True, "smooth_labels": True, "guard": True, "nonfinite": "skip"}


@pytest.mark.parametrize("method", ["tent", "tema"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_model_of_another_dtype_continues_bit_identical(
    dtype: torch.dtype, method: str, tmp_path: Path
) -> None:
    """The state of every wrapper included, from a file and from a state_dict."""
    model = convolutional().to(dtype)
    adapted, other = (adapt(model, method, **WRAPPED) for _ in range(2))  # type: ignore[arg-type]
    for batch in stream([40, 2]):
        adapted(batch.to(dtype))
    adapted.save(tmp_path / "state")
    again = load(tmp_path / "state", model)
    other.load_state_dict(adapted.state_dict())
    batch = images(3).to(dtype)
    expected = adapted(batch)
    for each in (again, other):
        assert torch.equal(each(batch), expected)
        assert same(snapshot(adapted), snapshot(each))
    with pytest.raises(StateError, match="float32"):
        load(tmp_path / "state", convolutional())


def test_a_layer_in_two_places_and_a_wrapped_model(tmp_path: Path) -> None:
    with on_cpu():
        layer = nn.BatchNorm2d(3)
        model = nn.Sequential(layer, nn.Conv2d(3, 3, 1), layer, nn.Flatten(), nn.Linear(432, 5))
    adapted = adapt(model, "tema")
    adapted(images(3))
    adapted.save(tmp_path / "state")
    again = load(tmp_path / "state", nn.DataParallel(model))
    assert torch.equal(again(images(2)), adapted(images(2)))


def other_weights() -> nn.Module:
    model = convolutional()
    with torch.no_grad():
        next(model.parameters()).view(-1)[0].add_(1e-3)
    return model


def other_source_statistics() -> nn.Module:
    model = convolutional()
    model.get_buffer("1.running_mean")[0] += 1e-3
    return model


OTHERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "more classes": (
        lambda: convolutional(classes=6),
        r'"12.weight" is float32\[6, 16\], expected',
    ),
    "other weights": (other_weights, "same layers with other weights"),
    "other source statistics": (other_source_statistics, "same layers with other weights"),
    "other dtype": (lambda: convolutional().double(), "is float64"),
    "other layers": (residual, "is missing"),
    "one layer more": (
        lambda: nn.Sequential(*convolutional().children(), nn.Linear(5, 5)),
        "is not expected",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_model_is_refused(case: str, saved: Path) -> None:
    make, words = OTHERS[case]
    with pytest.raises(StateError, match=f"belongs to another model.*{words}"):
        load(saved, make())


def rewrite(path: Path, **metadata: str) -> None:
    """The same file with other metadata and a checksum that is right."""
    tensors, words = read_tensors(path)
    write_tensors(path, tensors, words | metadata)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"method": "temaa"}, 'unknown method "temaa"; did you mean "tema"'),
        ({"method": "tema"}, "options that tema does not take"),
        ({"settings": '{"type": "RectifiedTema", "passes": 3}'}, "passes is 3; expected 1 or 2"),
        ({"settings": '{"type": "Popen"}'}, 'unknown settings type "Popen"'),
        ({"settings": "["}, "does not take"),
        ({"wrappers": '{"flipp": "{}"}'}, 'unknown wrapper "flipp"; did you mean "flip"'),
        ({"wrappers": '{"flip": "{}"}'}, "unknown settings type"),
        ({"wrappers": "[]"}, "lacks"),
        ({"model_layout": "nonsense"}, "lacks"),
    ],
)
def test_other_options_are_refused(saved: Path, metadata: dict[str, str], words: str) -> None:
    rewrite(saved, **metadata)
    with pytest.raises(StateError, match=words):
        load(saved, convolutional())


def test_other_tensors_are_refused(saved: Path) -> None:
    tensors, words = read_tensors(saved)
    key = "rectified_tema.prior"
    for changed in (
        {name: tensor for name, tensor in tensors.items() if name != key},
        {**tensors, key: torch.zeros(7)},
        {**tensors, key: tensors[key].double()},
        {**tensors, "prior": torch.zeros(3)},
    ):
        write_tensors(saved, changed, words)
        with pytest.raises(StateError, match="prior"):
            load(saved, convolutional())


def test_every_flipped_bit_is_noticed(saved: Path) -> None:
    content, draw = saved.read_bytes(), random.Random(0)  # noqa: S311 - no secret
    for place in [*range(8), *draw.sample(range(len(content)), 60)]:
        altered = bytearray(content)
        altered[place] ^= 1 << draw.randrange(8)
        saved.write_bytes(altered)
        with pytest.raises(StateError):
            load(saved, convolutional())


def test_a_directory_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is a directory"):
        load(tmp_path, convolutional())
    with pytest.raises(StateError, match="is a directory"):
        after([]).save(tmp_path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere", convolutional())
    with pytest.raises(FileNotFoundError):
        after([]).save(tmp_path / "nowhere" / "state")


def test_no_pickle_is_read_or_written(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    load(saved, convolutional()).save(saved)


def saved_batches(path: Path) -> int:
    return load(path, convolutional()).report().batches


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kills_at_any_moment_lose_nothing(tmp_path: Path) -> None:
    """SIGKILL at random moments of a program that saves after every batch and resumes from there.

    The file is always that of a whole number of batches, never of fewer than before, and it is
    bit-identical to that of a stream without any interruption.
    """
    draw, batches, path = random.Random(1), 0, tmp_path / "state"  # noqa: S311 - no secret
    adapt(convolutional(), "tent").save(path)
    for _ in range(12):
        ready, say = os.pipe()
        child = os.fork()
        if child == 0:
            adapted = load(path, convolutional())
            adapted.autosave(path, every_batches=1)
            os.write(say, b"!")
            while True:
                adapted(images(2, seed=adapted.report().batches, side=6))
        os.read(ready, 1)
        time.sleep(draw.random() * 0.15)
        os.close(ready)
        os.close(say)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert saved_batches(path) >= batches
        batches = saved_batches(path)
    assert batches
    expected = adapt(convolutional(), "tent")
    for seed in range(batches):
        expected(images(2, seed=seed, side=6))
    assert same(snapshot(load(path, convolutional())), snapshot(expected))


def test_autosave_by_batches_and_by_seconds(tmp_path: Path) -> None:
    adapted, path = adapt(convolutional(), "tema"), tmp_path / "state"
    handle = adapted.autosave(path, every_batches=3)
    found = []
    for batch in stream([2] * 7):
        adapted(batch)
        found.append(saved_batches(path))
    assert found == [0, 0, 3, 3, 3, 6, 6]
    handle.remove()
    adapted.autosave(path, every_seconds=0)
    adapted(images(2))
    assert saved_batches(path) == 8


def test_seconds_are_counted_from_the_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    adapted, path = adapt(convolutional(), "tema"), tmp_path / "state"
    adapted.autosave(path, every_seconds=60)
    found = []
    for now in (130.0, 159.0, 161.0, 200.0, 222.0):  # noqa: B007 - read by the clock
        adapted(images(2))
        found.append(saved_batches(path))
    assert found == [0, 0, 3, 3, 5]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"every_batches": 0},
        {"every_batches": 1.5},
        {"every_batches": True},
        {"every_seconds": -1},
        {"every_seconds": float("nan")},
        {"every_seconds": "1"},
        {"every_seconds": True},
    ],
    ids=str,
)
def test_autosave_refuses_other_values(tmp_path: Path, options: dict[str, Any]) -> None:
    adapted = adapt(convolutional(), "tema")
    with pytest.raises(OptionError, match=next(iter(options), "every_batches")):
        adapted.autosave(tmp_path / "state", **options)
    assert not (tmp_path / "state").exists()
    with pytest.raises(FileNotFoundError):
        adapted.autosave(tmp_path / "nowhere" / "state", every_batches=1)
    adapted(images(2))
    assert not list(tmp_path.iterdir())


def test_an_autosave_that_fails_costs_no_prediction_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted, path = adapt(convolutional(), "tema"), tmp_path / "state"
    expected = adapt(convolutional(), "tema")(images(2))
    adapted.autosave(path, every_batches=1)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", lambda _: 1 / 0)
        assert torch.equal(adapted(images(2)), expected)
    assert "a hook failed" in caplog.text
    assert saved_batches(path) == 0
    adapted(images(2))
    assert saved_batches(path) == 2


def test_counts_continue_after_a_restart(tmp_path: Path) -> None:
    adapted = after(stream([4, 2]), "tema")
    adapted.reset()
    adapted.save(tmp_path / "state")
    health = load(tmp_path / "state", convolutional()).health()
    assert (health.batches, health.images, health.resets) == (2, 6, 1)
