"""Archives from others: unpacked inside their folder, whole, or not at all."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from realistic_tta.data import archives as files
from realistic_tta.data.archives import list_files, unpack
from realistic_tta.errors import DataError

Add = Callable[[tarfile.TarFile], None]


def member(name: str, content: bytes = b"abc", **facts: object) -> Add:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        for key, value in facts.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(content) if info.isreg() else None)

    return add


def write_tar(path: Path, *members: Add, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for add in members:
            add(tar)
    return path


def everything(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("packed", ["", "gz", "bz2", "xz"])
def test_what_is_in_an_archive_is_in_the_folder(packed: str, tmp_path: Path) -> None:
    good = member("inner/file"), member("inner/deep/other", b"x" * 100_000)
    path = write_tar(tmp_path / "good.tar", *good, mode=f"w:{packed}")
    (tmp_path / "out" / "inner").mkdir(parents=True)
    (tmp_path / "out" / "inner" / "mine").write_bytes(b"stays")
    (tmp_path / "out" / "inner" / "file").write_bytes(b"old")
    unpack(path, tmp_path / "out")
    expected = {"inner/file": b"abc", "inner/deep/other": b"x" * 100_000, "inner/mine": b"stays"}
    assert everything(tmp_path / "out") == expected


HOSTILE: dict[str, tuple[Add, str]] = {
    "a name with ..": (member("../escaped"), "leads outside"),
    "a name with .. inside": (member("a/../../escaped"), "leads outside"),
    "an absolute name": (member("/var/escaped"), "leads outside"),
    "a symbolic link out": (member("x", b"", type=tarfile.SYMTYPE, linkname="/etc"), "is a link"),
    "a symbolic link in": (member("x", b"", type=tarfile.SYMTYPE, linkname="good"), "is a link"),
    "a hard link out": (
        member("x", b"", type=tarfile.LNKTYPE, linkname="../../secret"),
        "is a link",
    ),
    "a character device": (member("x", b"", type=tarfile.CHRTYPE, devmajor=1), "is not a file"),
    "a block device": (member("x", b"", type=tarfile.BLKTYPE), "is not a file"),
    "a pipe": (member("x", b"", type=tarfile.FIFOTYPE), "is not a file"),
    "folders without end": (member("a/" * 1500 + "x"), "1501 nested folders"),
    "a name too long": (member("x" * 5000), "cannot be unpacked"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_member_is_refused_and_nothing_is_left(kind: str, tmp_path: Path) -> None:
    """Not even the good member before it."""
    (tmp_path / "secret").write_bytes(b"mine")
    add, words = HOSTILE[kind]
    path = write_tar(tmp_path / "bad.tar", member("good"), add, member("later"))
    with pytest.raises(DataError, match=rf"bad.tar: .*{words}"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bad.tar", "out", "secret"]
    assert (tmp_path / "secret").read_bytes() == b"mine"


def test_a_link_and_what_is_written_through_it_are_refused(tmp_path: Path) -> None:
    link = member("way", b"", type=tarfile.SYMTYPE, linkname=str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    path = write_tar(tmp_path / "bad.tar", link, member("way/escaped"))
    with pytest.raises(DataError, match="is a link"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_no_file_comes_with_rights_of_others(tmp_path: Path) -> None:
    """Neither set-user-id nor writable by everyone."""
    unpack(write_tar(tmp_path / "a.tar", member("program", mode=0o6777)), tmp_path / "out")
    mode = (tmp_path / "out" / "program").stat().st_mode
    assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH | stat.S_IWGRP)
    assert (tmp_path / "out" / "program").stat().st_uid == os.getuid()


def zeros(tar: tarfile.TarFile) -> None:
    info = tarfile.TarInfo("zeros")
    info.size = 300 << 20
    with Path("/dev/zero").open("rb") as endless:
        tar.addfile(info, endless)


def test_a_bomb_is_refused_before_it_fills_disk_or_memory(tmp_path: Path) -> None:
    """300 MB in 300 kB: by its declared size, before anything of it is written."""
    path = write_tar(tmp_path / "bomb.tgz", member("good"), zeros, mode="w:gz")
    assert path.stat().st_size < 1 << 20
    for use in (lambda: unpack(path, tmp_path / "out"), lambda: list_files(path)):
        with pytest.raises(DataError, match=r"bomb.tgz: .* bytes that become more than 7\d,"):
            use()
    assert list((tmp_path / "out").iterdir()) == []


def test_a_bomb_inside_a_header_is_refused_too(tmp_path: Path) -> None:
    """A header of names may be as long as it says, and is read into memory as a whole."""
    header = tarfile.TarInfo("names")
    header.type, header.size = tarfile.XHDTYPE, 400 << 20
    path = tmp_path / "bomb.tgz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header.tobuf())
        for _ in range(400):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(DataError, match="become more than"):
        list_files(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3.1 * files.size_limit(path)


def test_a_sparse_file_is_as_large_as_it_says(tmp_path: Path) -> None:
    """A GNU sparse member of a terabyte needs a few bytes in the archive."""
    sparse = member("x", b"", pax_headers={"GNU.sparse.size": str(1 << 40)})
    path = write_tar(tmp_path / "sparse.tar", sparse)
    with pytest.raises(DataError, match=r"become more than|not a complete tar archive"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_very_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_MEMBERS", 10)
    unpack(write_tar(tmp_path / "a.tar", *[member(str(n)) for n in range(10)]), tmp_path / "out")
    many = write_tar(tmp_path / "many.tar", *[member(str(n)) for n in range(11)])
    with pytest.raises(DataError, match="more than 10 members"):
        unpack(many, tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_a_size_below_zero_is_no_way_to_read_for_ever(tmp_path: Path) -> None:
    """It would lead back to a member that was read already."""
    first, second = tarfile.TarInfo("a"), tarfile.TarInfo("b")
    second.size = -1024
    content = first.tobuf(tarfile.GNU_FORMAT) + second.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    (tmp_path / "back.tar").write_bytes(content)
    with pytest.raises(DataError, match="has the size -1024"):
        unpack(tmp_path / "back.tar", tmp_path / "out")
    with tarfile.open(tmp_path / "back.tar") as tar, pytest.raises(tarfile.ReadError):
        list(files.members_of(tar, tmp_path / "back.tar"))


def test_what_a_killed_one_left_is_cleared_away(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", member("file"))
    left = tmp_path / "out" / ".a.tar.unpacked.partial"
    left.mkdir(parents=True)
    (left / "half").touch()
    unpack(path, tmp_path / "out")
    assert everything(tmp_path / "out") == {"file": b"abc"}
