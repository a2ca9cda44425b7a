"""adapted.save and realistic_tta.load: the file, what it holds, and what is refused."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import convolutional, images, on_cpu, residual, same, snapshot, stream
from torch import Tensor, nn

import realistic_tta
from realistic_tta import METHODS, SGD, AdaptedModel, SettingError, StateError, adapt, load
from realistic_tta.methods import settings_json, state_file

VARIANTS: dict[str, dict[str, Any]] = {name: {"method": name} for name in METHODS}
VARIANTS["rectified_tema"] |= {"passes": 1, "start": "source"}
VARIANTS["tema"] |= {"momentum": 0.3}
VARIANTS["eta"] |= {"entropy_threshold": 1.0, "margin": 2.0}
VARIANTS["sar"] |= {"entropy_threshold": 1.0, "optimizer": SGD(lr=0.1, momentum=0.5)}
VARIANTS["cotta"] |= {"views": 2}
VARIANTS["adacontrast"] |= {"queue_size": 8, "refine_after": 3}


def after(batches: list[Tensor], **how: Any) -> AdaptedModel:
    adapted = adapt(convolutional(), **how)
    for batch in batches:
        adapted(batch)
    return adapted


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small state of rectified_tema after two batches."""
    path = tmp_path / "state"
    after(stream([4, 2]), method="rectified_tema").save(path)
    return path


@pytest.mark.parametrize("method", METHODS)
def test_a_loaded_state_goes_on_bit_for_bit(method: str, tmp_path: Path) -> None:
    """For every method, its optimiser and random draws included, in the middle of a stream."""
    adapted = after(stream([5, 16, 1]), **VARIANTS[method])
    adapted.save(tmp_path / "state")
    rest = stream([5, 16, 1, 7, 3])[3:]
    expected = [adapted(batch) for batch in rest]
    again = load(tmp_path / "state", convolutional())
    assert type(again) is type(adapted)
    assert again.settings == adapted.settings
    assert all(torch.equal(again(batch), each) for batch, each in zip(rest, expected, strict=True))
    assert same(snapshot(adapted), snapshot(again))


@pytest.mark.parametrize("method", METHODS)
def test_saving_changes_nothing(method: str, tmp_path: Path) -> None:
    adapted, other = (after(stream([4, 2]), **VARIANTS[method]) for _ in range(2))
    before = snapshot(adapted)
    adapted.save(tmp_path / "state")
    assert same(before, snapshot(adapted))
    assert torch.equal(adapted(images(3)), other(images(3)))


def test_a_file_goes_on_in_another_process(saved: Path, tmp_path: Path) -> None:
    program = (
        "import sys, torch, realistic_tta; sys.path.insert(0, sys.argv[2]); import subjects;"
        "torch.set_num_threads(1);"
        "adapted = realistic_tta.load(sys.argv[1] + '/state', subjects.convolutional());"
        "torch.save(adapted(subjects.images(3, seed=7)), sys.argv[1] + '/logits.pt')"
    )
    run_program(program, tmp_path)
    expected = load(saved, convolutional())(images(3, seed=7))
    assert torch.equal(torch.load(tmp_path / "logits.pt"), expected)


def run_program(program: str, folder: Path) -> None:
    tests = Path(__file__).parents[1]
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program, str(folder), str(tests)], check=True
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", [None, "cifar100_c", "imagenet_c"])
def test_settings_come_back_from_json_as_they_were(method: str, preset: str | None) -> None:
    kind = METHODS[method].settings_type
    if preset and not getattr(kind, "presets", None):
        return
    settings = adapt(convolutional(), **VARIANTS[method], preset=preset).settings
    text = settings_json.to_json(settings)
    assert settings_json.from_json(kind, text) == settings
    assert json.loads(text)["type"] == kind.__name__


def test_settings_that_cannot_be_are_refused_as_if_given_by_hand() -> None:
    kind = METHODS["sar"].settings_type
    good = json.loads(settings_json.to_json(kind()))
    for change in ({"radius": -1}, {"type": "Popen"}, {"optimizer": {"type": "Tent"}}, {"x": 1}):
        with pytest.raises(SettingError):
            settings_json.from_json(kind, json.dumps(good | change))


def test_weights_that_no_method_changes_are_not_in_the_file(tmp_path: Path) -> None:
    """The file of rectified_tema on a ResNet is smaller than a tenth of the network."""
    adapted = adapt(residual(), "rectified_tema")
    adapted(images(2, side=32))
    adapted.save(tmp_path / "state")
    network = sum(tensor.nbytes for tensor in residual().state_dict().values())
    assert (tmp_path / "state").stat().st_size < network / 10


class Counting(nn.Module):
    """A network with a memory of its own."""

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


def test_what_a_network_keeps_in_its_own_buffers_is_part_of_the_state(tmp_path: Path) -> None:
    adapted = adapt(Counting(), "tema")
    adapted(images(3))
    adapted.save(tmp_path / "state")
    again = load(tmp_path / "state", Counting())
    assert torch.equal(again(images(2)), adapted(images(2)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_converted_network_is_saved_and_restored_in_its_type(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    adapted = after(stream([4, 2]), method="tent").to(dtype)
    adapted.save(tmp_path / "state")
    again = load(tmp_path / "state", convolutional().to(dtype))
    batch = images(3).to(dtype)
    assert torch.equal(again(batch), adapted(batch))
    with pytest.raises(StateError, match="float32"):
        load(tmp_path / "state", convolutional())


def test_a_layer_in_two_places_and_a_wrapped_network(tmp_path: Path) -> None:
    with on_cpu():
        layer = nn.BatchNorm2d(3)
        network = nn.Sequential(layer, nn.Conv2d(3, 3, 1), layer, nn.Flatten(), nn.Linear(432, 5))
    adapted = adapt(network, "tema")
    adapted(images(3))
    adapted.save(tmp_path / "state")
    again = load(tmp_path / "state", nn.DataParallel(network))
    assert torch.equal(again(images(2)), adapted(images(2)))


def other_weights() -> nn.Module:
    network = convolutional()
    with torch.no_grad():
        next(network.parameters()).view(-1)[0].add_(1e-3)
    return network


def other_source_statistics() -> nn.Module:
    network = convolutional()
    network.get_buffer("1.running_mean")[0] += 1e-3
    return network


OTHERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "more classes": (lambda: convolutional(classes=6), r'"12.bias" is float32\[6\], expected'),
    "other weights": (other_weights, "same layers with other weights"),
    "other source statistics": (other_source_statistics, "same layers with other weights"),
    "other type": (lambda: convolutional().double(), "is float64"),
    "other layers": (residual, "it has no"),
    "one layer more": (
        lambda: nn.Sequential(*convolutional().children(), nn.Linear(5, 5)),
        "not expected",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_network_is_refused(case: str, saved: Path) -> None:
    make, words = OTHERS[case]
    with pytest.raises(StateError, match=f"belongs to another network.*{words}"):
        load(saved, make())


def rewrite(path: Path, **words: str) -> None:
    """The same file with other words in it and a checksum that is right."""
    stored = state_file.read_state(path)
    state_file.write_state(path, state_file.Stored(stored.tensors, {**stored.words, **words}))


def test_another_method_or_settings_are_refused(saved: Path) -> None:
    rewrite(saved, method="temaa")
    with pytest.raises(StateError, match='unknown method "temaa"; did you mean "tema"'):
        load(saved, convolutional())
    rewrite(saved, method="tema")
    with pytest.raises(StateError, match="settings that tema does not take"):
        load(saved, convolutional())


def test_another_format_version_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "FORMAT_VERSION", 2)
    with pytest.raises(StateError, match=r"format version 1; .*reads 2"):
        load(saved, convolutional())


def test_a_state_of_other_tensors_is_refused(saved: Path) -> None:
    stored = state_file.read_state(saved)
    for tensors in (
        {name: tensor for name, tensor in stored.tensors.items() if name != "prior"},
        {**stored.tensors, "prior": torch.zeros(7)},
        {**stored.tensors, "prior": stored.tensors["prior"].double()},
    ):
        state_file.write_state(saved, state_file.Stored(tensors, stored.words))
        with pytest.raises(StateError, match="prior"):
            load(saved, convolutional())


def test_every_length_of_a_truncated_file_is_refused(saved: Path) -> None:
    content = saved.read_bytes()
    step = max(1, len(content) // 200)
    for length in [*range(0, len(content), step), len(content) - 1]:
        saved.write_bytes(content[:length])
        with pytest.raises(StateError, match=r"truncated|not a state"):
            load(saved, convolutional())


def test_every_flipped_bit_is_noticed(saved: Path) -> None:
    """A bit of each of 300 bytes, over the whole file; and something more at its end."""
    content, draw = saved.read_bytes(), random.Random(0)  # noqa: S311 - no secret
    for place in [*range(8), *draw.sample(range(len(content)), 300)]:
        altered = bytearray(content)
        altered[place] ^= 1 << draw.randrange(8)
        saved.write_bytes(altered)
        with pytest.raises(StateError):
            load(saved, convolutional())
    saved.write_bytes(content + b"\0")
    with pytest.raises(StateError, match="checksum"):
        load(saved, convolutional())


NO_STATES: dict[str, bytes] = {
    "empty": b"",
    "text": b"not a state at all, only a line of text",
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "a huge header": struct.pack("<Q", 2**63) + b"{}",
    "nested brackets": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "an empty header": struct.pack("<Q", 2) + b"{}",
    "a header of numbers": struct.pack("<Q", 24) + b'{"__metadata__": 3, "a":1}'[:24],
}


@pytest.mark.parametrize("case", NO_STATES)
def test_what_is_no_state_is_refused(case: str, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(NO_STATES[case])
    with pytest.raises(StateError, match="not a state"):
        load(tmp_path / "state", convolutional())


def test_other_safetensors_are_no_state(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weights": torch.zeros(3)}, tmp_path / "weights.safetensors")
    with pytest.raises(StateError, match="not a state"):
        load(tmp_path / "weights.safetensors", convolutional())


def test_a_directory_and_a_missing_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is a directory"):
        load(tmp_path, convolutional())
    with pytest.raises(StateError, match="is a directory"):
        after([]).save(tmp_path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere", convolutional())
    with pytest.raises(FileNotFoundError):
        after([]).save(tmp_path / "nowhere" / "state")


def test_an_adapted_network_is_not_the_one_to_load_onto(saved: Path) -> None:
    with pytest.raises(SettingError, match="as trained"):
        load(saved, adapt(convolutional()))


def test_no_pickle_is_read_or_written(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    load(saved, convolutional()).save(saved)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        after([]).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["state"]


def test_a_link_stays_and_the_file_behind_it_is_written(saved: Path) -> None:
    link = saved.parent / "link"
    link.symlink_to(saved)
    before = saved.read_bytes()
    after(stream([4])).save(link)
    assert link.is_symlink()
    assert saved.read_bytes() != before


SAVING = """
import sys, torch, realistic_tta
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import subjects
torch.set_num_threads(1)
folder = Path(sys.argv[1])
state = folder / "state"
network = subjects.convolutional()
if state.exists():
    adapted = realistic_tta.load(state, network)
else:
    adapted = realistic_tta.adapt(network)
adapted.autosave(state, every_batches=1)
print("ready", flush=True)
while True:
    adapted(subjects.images(2, seed=int(adapted.step), side=6))
"""


def test_killed_at_any_moment_the_last_good_state_loads(tmp_path: Path) -> None:
    """SIGKILL at random moments of a program that saves after every batch and goes on from there.

    The state that is left is always that of a whole number of batches, never of fewer than before,
    and it is, to the bit, what a stream without any interruption leads to.
    """
    tests, steps = str(Path(__file__).parents[1]), 0
    draw = random.Random(0)  # noqa: S311 - no secret
    for _ in range(3):
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", SAVING, str(tmp_path), tests], stdout=subprocess.PIPE
        )
        assert process.stdout
        process.stdout.readline()
        for _ in range(draw.randint(1, 3)):
            time.sleep(draw.random() * 0.15)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        left = load(tmp_path / "state", convolutional())
        assert int(left.step) >= steps
        steps = int(left.step)
    expected = adapt(convolutional())
    for seed in range(steps):
        expected(images(2, seed=seed, side=6))
    assert steps
    assert same(snapshot(left), snapshot(expected))


def kill_while_saving(path: Path, kills: int) -> tuple[int, int]:
    """How many whole batches the file is of after so many kills, and how many fell into a save."""
    draw, steps, during = random.Random(1), 0, 0  # noqa: S311 - no secret
    adapt(convolutional(), "tent").save(path)
    for _ in range(kills):
        ready, say = os.pipe()
        child = os.fork()
        if child == 0:
            adapted = load(path, convolutional())
            adapted.autosave(path, every_batches=1)
            os.write(say, b"!")
            while True:
                adapted(images(2, seed=int(adapted.step), side=6))
        os.read(ready, 1)
        time.sleep(draw.random() * 0.15)
        os.close(ready)
        os.close(say)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        during += len(left := list(path.parent.glob(".state.*.partial")))
        for partial in left:
            partial.unlink()
        step = int(load(path, convolutional()).step)
        assert step >= steps
        steps = step
    return steps, during


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kills_in_the_middle_of_a_save_lose_nothing(tmp_path: Path) -> None:
    """As above, in forked children and with a method that trains."""
    steps, _ = kill_while_saving(tmp_path / "state", kills=25)
    assert steps
    expected = adapt(convolutional(), "tent")
    for seed in range(steps):
        expected(images(2, seed=seed, side=6))
    assert same(snapshot(load(tmp_path / "state", convolutional())), snapshot(expected))


def test_autosave_by_batches_and_by_seconds(tmp_path: Path) -> None:
    adapted, path = adapt(convolutional(), "tema"), tmp_path / "state"

    def saved_step() -> int:
        return int(load(path, convolutional()).step)

    stop = adapted.autosave(path, every_batches=3)
    steps = []
    for batch in stream([2] * 7):
        adapted(batch)
        steps.append(saved_step())
    assert steps == [0, 0, 3, 3, 3, 6, 6]
    stop()
    stop()  # a second time does no harm
    adapted.autosave(path, every_seconds=0)
    adapted(images(2))
    assert saved_step() == 8


def test_seconds_are_counted_from_the_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    adapted, path = adapt(convolutional(), "tema"), tmp_path / "state"
    adapted.autosave(path, every_seconds=60)
    steps = []
    for now in (130.0, 159.0, 161.0, 200.0, 222.0):  # noqa: B007 - read by the clock
        adapted(images(2))
        steps.append(int(load(path, convolutional()).step))
    assert steps == [0, 0, 3, 3, 5]


def test_autosave_refuses_what_cannot_be(tmp_path: Path) -> None:
    adapted = adapt(convolutional(), "tema")
    with pytest.raises(SettingError, match="every_batches"):
        adapted.autosave(tmp_path / "state")
    with pytest.raises(SettingError, match="every_batches"):
        adapted.autosave(tmp_path / "state", every_batches=0)
    with pytest.raises(SettingError, match="every_seconds"):
        adapted.autosave(tmp_path / "state", every_seconds=-1)
    with pytest.raises(FileNotFoundError):
        adapted.autosave(tmp_path / "nowhere" / "state", every_batches=1)
    assert not adapted.after_batch


def test_an_autosave_that_fails_costs_no_prediction_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted, path = adapt(convolutional(), "tema"), tmp_path / "state"
    expected = adapt(convolutional(), "tema")(images(2))
    adapted.autosave(path, every_batches=1)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", lambda _: 1 / 0)
        assert torch.equal(adapted(images(2)), expected)
    assert "autosave" in caplog.text
    assert int(load(path, convolutional()).step) == 0
    adapted(images(2))
    assert int(load(path, convolutional()).step) == 2


def test_counts_go_on_after_a_restart(tmp_path: Path) -> None:
    adapted = after(stream([4, 2]), method="tema")
    adapted.reset()
    adapted.save(tmp_path / "state")
    health = load(tmp_path / "state", convolutional()).health()
    assert (health.batches, health.images, health.resets) == (2, 6, 1)


def test_the_version_that_wrote_it_is_in_the_file(saved: Path) -> None:
    words = state_file.read_state(saved).words
    assert words["package_version"] == realistic_tta.__version__
    assert words["method"] == "rectified_tema"
