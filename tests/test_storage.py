"""Atomic writes, tensor files and model hashes."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from realistic_tta import storage
from realistic_tta.errors import StateError
from realistic_tta.storage import (
    atomic_write,
    leftovers,
    model_hash,
    read_tensors,
    tensors_hash,
    write_tensors,
)

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b.c": torch.tensor(7), "empty": torch.zeros(0, 3)}
METADATA = {"method": "tema", "quotes": '"checksum":"' + "0" * 64 + '"'}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    write_tensors(path, TENSORS, METADATA)
    return path


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        found[name].dtype == expected[name].dtype
        and found[name].shape == expected[name].shape
        and torch.equal(found[name], expected[name])
        for name in found
    )


# Atomic writes


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    for content in (b"first", bytearray(b"second"), b""):
        atomic_write(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_honors_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    with umask(mask):
        atomic_write(tmp_path / "file", b"x")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o660, 0o755])
def test_an_existing_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(mode)
    with umask(0o077):
        atomic_write(tmp_path / "file", b"new")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(target)
    atomic_write(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()


def test_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "link")
    with pytest.raises(OSError, match="levels of symbolic links"):
        atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is a directory"):
        atomic_write(tmp_path, b"")
    with pytest.raises(StateError, match="is a directory"):
        write_tensors(tmp_path, TENSORS, {})
    with pytest.raises(StateError, match="is a directory"):
        read_tensors(tmp_path)


def test_a_pipe_is_neither_replaced_nor_waited_for(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(StateError, match="not a regular file"):
            atomic_write(path, b"")
        with pytest.raises(StateError, match="not a regular file"):
            write_tensors(path, TENSORS, {})
        with pytest.raises(StateError, match="not a regular file"):
            read_tensors(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(StateError, match="not a regular file"):
        atomic_write(Path("/dev/null"), b"")
    with pytest.raises(StateError, match="not a regular file"):
        read_tensors(Path("/dev/zero"))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_write(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_leftovers_are_those_of_this_file_alone(tmp_path: Path) -> None:
    """A process that is killed between writing and renaming leaves its temporary file."""
    program = (
        "import os, sys; from pathlib import Path; from realistic_tta import storage;"
        "os.fsync = lambda _: os._exit(9);"
        "storage.atomic_write(Path(sys.argv[1]), b'half')"
    )
    for name in ("state", "state.old"):
        assert subprocess.run([sys.executable, "-c", program, tmp_path / name]).returncode == 9  # noqa: PLW1510, S603
    (found,) = leftovers(tmp_path / "state")
    assert found.read_bytes() == b"half"
    assert not (tmp_path / "state").exists()
    assert leftovers(tmp_path / "other") == []
    assert leftovers(tmp_path / "nowhere" / "state") == []


def test_importing_storage_alone_needs_no_torch() -> None:
    """Loaded without the package's __init__, which imports torch."""
    program = (
        "import sys, types; package = types.ModuleType('realistic_tta');"
        f"package.__path__ = [{str(Path(storage.__file__).parent)!r}];"
        "sys.modules['realistic_tta'] = package; import realistic_tta.storage;"
        "assert 'torch' not in sys.modules and 'safetensors' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603


# Tensor files


def test_tensors_and_metadata_come_back(written: Path) -> None:
    tensors, metadata = read_tensors(written)
    assert same(tensors, TENSORS)
    assert metadata == METADATA


DTYPES = st.sampled_from(
    [
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.uint8,
        torch.bool,
    ]
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter("__metadata__".__ne__)


@given(
    st.dictionaries(NAMES, st.tuples(DTYPES, st.lists(st.integers(0, 4), max_size=3)), max_size=4),
    st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"])), max_size=4),
)
@settings(max_examples=100)
def test_any_tensors_and_metadata_come_back(
    shapes: dict[str, tuple[torch.dtype, list[int]]], metadata: dict[str, str]
) -> None:
    metadata = {name: value for name, value in metadata.items() if name not in storage._RESERVED}
    tensors = {name: torch.ones(shape).to(dtype) for name, (dtype, shape) in shapes.items()}
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder) / "file", tensors, metadata)
        found, words = read_tensors(Path(folder) / "file")
    assert same(found, tensors)
    assert words == metadata


def test_shared_strided_and_trained_tensors_are_stored(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    tensors = {"whole": base, "turned": base.T, "part": base[1:], "trained": nn.Parameter(base)}
    write_tensors(tmp_path / "file", tensors, {})
    assert same(read_tensors(tmp_path / "file")[0], tensors)


@pytest.mark.parametrize("value", [3, None, [torch.ones(1)]])
def test_what_is_no_tensor_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r'"count" is of type .*expected a tensor'):
        write_tensors(tmp_path / "file", {"count": value}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "tensors", [{"a": torch.eye(2).to_sparse()}, {"__metadata__": torch.ones(1)}]
)
def test_what_safetensors_lacks_is_refused(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"cannot be written|is reserved"):
        write_tensors(tmp_path / "file", tensors, {})


def test_another_kind_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", TENSORS, {}, kind="training")
    assert same(read_tensors(tmp_path / "file", kind="training")[0], TENSORS)
    with pytest.raises(StateError, match='of kind "training"; expected "state"'):
        read_tensors(tmp_path / "file")


def test_another_version_is_refused(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "FORMAT_VERSION", 2)
    with pytest.raises(StateError, match=r"format version 1; .*reads 2"):
        read_tensors(written)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_tensors(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        write_tensors(tmp_path / "nowhere" / "file", TENSORS, {})


def content() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder) / "file", TENSORS, METADATA)
        return (Path(folder) / "file").read_bytes()


CONTENT = content()


def refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file").write_bytes(content)
        with pytest.raises(StateError):
            read_tensors(Path(folder) / "file")


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_any_changed_byte_is_noticed(place: int, change: int) -> None:
    altered = bytearray(CONTENT)
    altered[place] ^= change
    refused(bytes(altered))


@given(st.integers(0, len(CONTENT) - 1))
def test_any_truncation_is_noticed(length: int) -> None:
    refused(CONTENT[:length])


@given(st.binary(min_size=1, max_size=20))
def test_anything_appended_is_noticed(more: bytes) -> None:
    refused(CONTENT + more)


def signed(header: Any, data: bytes = b"") -> bytes:
    """A file with this header, and a checksum that is right."""
    about = dict.fromkeys(storage._RESERVED, "") | {
        "format": storage.FORMAT,
        "format_version": str(storage.FORMAT_VERSION),
        "kind": "state",
        "checksum": "0" * 64,
    }
    text = json.dumps({"__metadata__": about, **header}, separators=(",", ":")).encode()
    whole = struct.pack("<Q", len(text)) + text + data
    return whole.replace(b"0" * 64, hashlib.sha256(whole).hexdigest().encode(), 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
TENSOR_LIKE = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F4", "F8_E4M3", "BF16", "BOOL", "X"]) | JSON,
        "shape": st.lists(st.integers(-1, 2**63), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-1, 16), min_size=2, max_size=2) | JSON,
    }
)


def test_a_signed_header_is_read(tmp_path: Path) -> None:
    """The test below is of headers, so the rest of the file must be right."""
    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    (tmp_path / "file").write_bytes(signed({"a": tensor}, bytes(8)))
    assert same(read_tensors(tmp_path / "file")[0], {"a": torch.zeros(2)})


@given(st.dictionaries(st.text(max_size=5), TENSOR_LIKE | JSON, max_size=3), st.binary(max_size=16))
@settings(max_examples=400)
def test_a_hostile_header_is_read_or_refused(header: dict[str, Any], data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file").write_bytes(signed(header, data))
        with suppress(StateError):
            read_tensors(Path(folder) / "file")


def with_header(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "text": b"not a state at all, only a line of text",
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "a huge header": struct.pack("<Q", 2**63) + b"{}",
    "nested brackets": with_header(b"[" * 200_000),
    "an empty header": with_header(b"{}"),
    "a list": with_header(b"[]"),
    "metadata of numbers": with_header(b'{"__metadata__":{"format":"realistic_tta","x":1}}'),
    "metadata that is a number": with_header(b'{"__metadata__":3,"a":1}'),
    "a number of a million digits": with_header(b'{"a":' + b"9" * 10**6 + b"}"),
    "bytes that are no text": with_header(b"\xff\xfe\xfd"),
    "a lone surrogate": signed({}).replace(b'"kind":"state"', b'"kind":"\\ud8a"'),
    "a checksum of surrogates": signed({}).replace(b'"checksum":"', b'"checksum":"\\ud800'),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_tensor_file_is_refused(case: str) -> None:
    refused(HOSTILE[case])


def test_other_safetensors_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weights": torch.zeros(3)}, tmp_path / "weights.safetensors")
    with pytest.raises(StateError, match="not a file of this library"):
        read_tensors(tmp_path / "weights.safetensors")


# Model hashes


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


def test_equal_models_have_equal_hashes() -> None:
    assert model_hash(model()) == model_hash(model())
    assert len(model_hash(model())) == 64
    assert model_hash(nn.Identity()) == model_hash(nn.ReLU())  # no tensors


def test_the_hash_ignores_memory_layout_and_wrapping() -> None:
    expected = model_hash(model())
    assert model_hash(model().to(memory_format=torch.channels_last)) == expected  # type: ignore[call-overload]
    assert model_hash(nn.DataParallel(model())) == expected
    assert model_hash(torch.compile(model(), backend="eager")) == expected  # type: ignore[arg-type]


def changed_weight() -> nn.Module:
    changed = model()
    with torch.no_grad():
        changed.get_parameter("0.weight").view(-1)[5].add_(1e-6)
    return changed


def changed_buffer() -> nn.Module:
    changed = model()
    changed.get_buffer("1.num_batches_tracked").add_(1)
    return changed


def renamed() -> nn.Module:
    return nn.Sequential(nn.Identity(), *model())


def reshaped() -> nn.Module:
    changed = model()
    changed[3].weight = nn.Parameter(changed.get_parameter("3.weight").detach().view(4, 2))
    return changed


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "weight": changed_weight,
    "buffer": changed_buffer,
    "name": renamed,
    "shape": reshaped,
    "type": lambda: model().double(),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_model_has_another_hash(case: str) -> None:
    assert model_hash(OTHERS[case]()) != model_hash(model())


def test_tied_weights_and_non_persistent_buffers_count() -> None:
    layer = nn.Linear(2, 2)
    tied, single = nn.Sequential(layer, layer), nn.Sequential(layer)
    assert model_hash(tied) != model_hash(single)
    first, second = nn.Identity(), nn.Identity()
    first.register_buffer("mean", torch.zeros(1), persistent=False)
    second.register_buffer("mean", torch.ones(1), persistent=False)
    assert model_hash(first) != model_hash(second)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision_has_a_hash(dtype: torch.dtype) -> None:
    converted = model().to(dtype)
    assert model_hash(converted) == model_hash(converted.to(memory_format=torch.channels_last))  # type: ignore[call-overload]


def test_the_hash_of_tensors_does_not_depend_on_their_order() -> None:
    turned = dict(reversed(TENSORS.items()))
    assert tensors_hash(turned) == tensors_hash(TENSORS)
    assert tensors_hash({**TENSORS, "a": TENSORS["a"].T}) != tensors_hash(TENSORS)
