"""Files with errors in them: read, or refused by the package's own error. Never anything else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fuzz_targets import TARGETS, run, tar
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LONGEST = 20.0  # seconds for one file, on a busy machine

EDITS = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "cut", "repeat"]),
        st.floats(0, 1),  # where
        st.binary(min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=6,
)


def edited(content: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, new in edits:
        at = int(where * len(content))
        content = {
            "replace": content[:at] + new + content[at + len(new) :],
            "insert": content[:at] + new + content[at:],
            "delete": content[:at] + content[at + len(new) :],
            "cut": content[:at],
            "repeat": content[:at] + content[max(at - 40, 0) :],
        }[kind]
    return content


NO_FILES = [b"", b"\0", b"\xff\xfe", b"{}", b"[]", b"null", b"[" * 100_000, b"- " * 900]


@pytest.mark.parametrize("name", TARGETS)
def test_a_good_file_is_read(name: str, tmp_path: Path) -> None:
    """Else the other tests here would show nothing."""
    assert run(TARGETS[name], TARGETS[name].good(), tmp_path / "file")


@pytest.mark.parametrize("name", TARGETS)
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(edits=EDITS)
def test_a_file_with_errors_is_read_or_refused(
    name: str, edits: list[tuple[str, float, bytes]], tmp_path: Path
) -> None:
    begin = time.monotonic()
    run(TARGETS[name], edited(TARGETS[name].good(), edits), tmp_path / "file")
    assert time.monotonic() - begin < LONGEST
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("content", NO_FILES)
def test_what_is_no_such_file_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    run(TARGETS[name], content, tmp_path / "file")


def header(text: bytes) -> bytes:
    """Of an .npy file, without what it describes."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


FOUND = {  # by fuzzing; each once ended in another error, or not at all
    "a header that breaks Python's own reader": ("labels.npy", header(b"{'descr': '<i8', (]}\n")),
    "a header without an end": ("labels.npy", header(b"{'descr': '<i8',\n")),
    "a length below zero": (
        "labels.npy",
        header(b"{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}\n"),
    ),
    "a label that no array holds": ("labels.json", b"[1e5, 99999999999999999999999]"),
    "a severity of another script": ("imagenet-c tar", tar("w", {"fog/\u00b2/n/a.JPEG": b"x"})),
    "lists in lists": ("toml grid", b"batch_sizes = " + b"[" * 50_000),
    "more experiments than anyone runs": ("toml grid", b"seeds = [" + b"1," * 40_000 + b"]"),
    "numbers for names": ("toml grid", b"datasets = [4, 1]\n"),
    "a table for a name": ("toml grid", b"methods = [{size = 4}]\n"),
    "half of a character": ("record", b'{"key": "\\ud800"}'),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_fuzzing_has_found_is_refused(what: str, tmp_path: Path) -> None:
    name, content = FOUND[what]
    assert not run(TARGETS[name], content, tmp_path / "file")
