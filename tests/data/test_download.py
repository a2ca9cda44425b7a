from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import web

from realistic_tta.data.download import (
    RetryPolicy,
    check_file,
    fetch,
    fetch_by_npm,
)
from realistic_tta.data.registry import Archive, NpmMirror
from realistic_tta.errors import DataError

CONTENT = bytes(range(256)) * 8000  # two blocks
QUICK = RetryPolicy(attempts=3, wait=0.0, timeout=5.0)


def archive_of(address: str, content: bytes = CONTENT, sha256: str | None = None) -> Archive:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return Archive("file.tar", address, len(content), md5, sha256)


def test_a_file_arrives_whole_under_its_name(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with web.serve(web.Site(CONTENT)) as site:
        path = fetch(
            archive_of(site.address),
            tmp_path / "new",
            progress=lambda there, expected: seen.append((there, expected)),
        )
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_file_that_is_there_is_checked_and_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file.tar").write_bytes(CONTENT)
    with web.serve(web.Site(CONTENT)) as site:
        fetch(archive_of(site.address), tmp_path)
        assert site.asked == []
    (tmp_path / "file.tar").write_bytes(CONTENT[:-1])
    with pytest.raises(DataError, match=r"file.tar: 2,047,999 bytes; expected 2,048,000"):
        fetch(archive_of("http://unused"), tmp_path)


def test_an_interrupted_transfer_resumes_where_it_stopped(tmp_path: Path) -> None:
    with web.serve(web.Site(CONTENT, breaks=[1000, 500])) as site:
        path = fetch(archive_of(site.address), tmp_path, retry=QUICK)
        assert site.asked == [None, "bytes=1000-", "bytes=1500-"]
    assert path.read_bytes() == CONTENT


def test_a_later_call_resumes_too(tmp_path: Path) -> None:
    once = RetryPolicy(attempts=1, wait=0.0, timeout=5.0)
    with web.serve(web.Site(CONTENT, breaks=[1000])) as site:
        with pytest.raises(DataError, match=r"closed at 1,000 of 2,048,000 bytes"):
            fetch(archive_of(site.address), tmp_path, retry=once)
        assert [path.name for path in tmp_path.iterdir()] == ["file.tar.partial"]
        path = fetch(archive_of(site.address), tmp_path, retry=once)
        assert site.asked == [None, "bytes=1000-"]
    assert path.read_bytes() == CONTENT


def test_a_server_that_cannot_resume_sends_all_again(tmp_path: Path) -> None:
    with web.serve(web.Site(CONTENT, resumes=False, breaks=[1000])) as site:
        path = fetch(archive_of(site.address), tmp_path, retry=QUICK)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("etag", ['"v1"', '"v2"']),
        ("modified", ["Mon, 02 Nov 2026 00:00:00 GMT", "Tue, 03 Nov 2026 00:00:00 GMT"]),
    ],
)
def test_a_file_exchanged_between_two_attempts_is_begun_anew(
    name: str, versions: list[str], tmp_path: Path
) -> None:
    """Half of the old and half of the new would be neither."""
    before, after = web.Site(b"x" * len(CONTENT), breaks=[1000]), web.Site(CONTENT)
    for site, value in ((before, versions[0]), (after, versions[1])):
        setattr(site, name, value)
    with web.serve(before), pytest.raises(DataError, match="closed at 1,000"):
        fetch(archive_of(before.address), tmp_path, retry=RetryPolicy(1, 0.0, 5.0))
    with web.serve(after):
        path = fetch(archive_of(after.address), tmp_path, retry=QUICK)
        assert after.asked == ["bytes=1000-"], "one request: the server sent all at once"
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_stayed_resumes_and_a_weak_version_is_not_trusted(tmp_path: Path) -> None:
    site = web.Site(CONTENT, breaks=[1000], etag='"v1"')
    with web.serve(site):
        assert fetch(archive_of(site.address), tmp_path, retry=QUICK).exists()
    assert site.conditions == [None, '"v1"']
    (tmp_path / "file.tar").unlink()
    site = web.Site(CONTENT, breaks=[1000], etag='W/"v1"')
    with web.serve(site):
        assert fetch(archive_of(site.address), tmp_path, retry=QUICK).exists()
    assert site.conditions == [None, None]


def test_what_was_begun_wrong_is_begun_anew_once(tmp_path: Path) -> None:
    """The server knows no versions, and what lies here is of another file."""
    (tmp_path / "file.tar.partial").write_bytes(b"something else")
    with web.serve(web.Site(CONTENT)) as site:
        assert fetch(archive_of(site.address), tmp_path).read_bytes() == CONTENT
        assert site.asked == ["bytes=14-", None]


def test_a_server_that_falls_silent_is_given_up_and_asked_again(tmp_path: Path) -> None:
    short = RetryPolicy(attempts=2, wait=0.0, timeout=0.3)
    with web.serve(web.Site(CONTENT, breaks=[1000], stalls=1.5)) as site:
        path = fetch(archive_of(site.address), tmp_path, retry=short)
        assert site.asked == [None, "bytes=1000-"], "what came before the silence is kept"
    assert path.read_bytes() == CONTENT


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/file.tar"
        begin = time.monotonic()
        with pytest.raises(DataError, match="timed out"):
            fetch(archive_of(address), tmp_path, retry=RetryPolicy(2, 0.0, 0.2))
        assert time.monotonic() - begin < 5


def test_a_connection_that_is_reset_resumes(tmp_path: Path) -> None:
    with web.serve(web.Site(CONTENT, breaks=[700_000], resets=True)) as site:
        path = fetch(archive_of(site.address), tmp_path, retry=QUICK)
        assert len(site.asked) == 2
    assert path.read_bytes() == CONTENT


def test_each_attempt_waits_twice_as_long_as_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    with (
        web.serve(web.Site(CONTENT, statuses=[500, 502, 503, 504])) as site,
        pytest.raises(DataError, match=r"gave up after 4 attempts \(the server answered 504\)"),
    ):
        fetch(archive_of(site.address), tmp_path, retry=RetryPolicy(wait=1.0))
    assert [seconds for seconds in waited if seconds >= 1] == [1.0, 2.0, 4.0]


FETCH = """
import sys
from pathlib import Path
from realistic_tta.data.registry import Archive
from realistic_tta.data.download import fetch
print("begun", flush=True)
fetch(Archive(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]), Path(sys.argv[5]))
"""


def test_killed_at_random_moments_the_bytes_are_right(tmp_path: Path) -> None:
    """SIGKILL, five times in the middle; tools/kills.py does it hundreds of times."""
    chance, there = random.Random(0), 0  # noqa: S311 - moments to kill at
    content = chance.randbytes(40_000_000)
    with web.serve(web.Site(content, etag='"v1"', pause=0.02)) as site:
        archive = archive_of(site.address, content)
        words = [archive.name, archive.url, str(archive.size), archive.md5, str(tmp_path)]
        command = [sys.executable, "-c", FETCH, *words]
        for _ in range(5):
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
                assert process.stdout is not None
                assert process.stdout.readline() == b"begun\n"
                partial = tmp_path / "file.tar.partial"
                while not partial.exists() or partial.stat().st_size <= there:
                    assert process.poll() is None
                time.sleep(chance.random() / 10)
                os.kill(process.pid, signal.SIGKILL)
            there = partial.stat().st_size
            assert content.startswith(partial.read_bytes())
            assert not (tmp_path / "file.tar").exists()
        assert fetch(archive, tmp_path).read_bytes() == content
        assert len(site.asked) == 6
        assert site.asked[5] == f"bytes={there}-"


def test_a_refused_range_starts_again(tmp_path: Path) -> None:
    (tmp_path / "file.tar.partial").write_bytes(b"something else")
    with web.serve(web.Site(CONTENT, statuses=[416])) as site:
        path = fetch(archive_of(site.address), tmp_path, retry=QUICK)
        assert site.asked == ["bytes=14-", None]
    assert path.read_bytes() == CONTENT


def test_a_partial_file_that_is_too_long_starts_again(tmp_path: Path) -> None:
    (tmp_path / "file.tar.partial").write_bytes(CONTENT + b"more")
    with web.serve(web.Site(CONTENT)) as site:
        assert fetch(archive_of(site.address), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_a_wrong_checksum_is_refused_and_nothing_is_kept(kind: str, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(CONTENT).hexdigest() if kind == "sha256" else None
    other = CONTENT[:-1] + b"x"
    with (
        web.serve(web.Site(other)) as site,
        pytest.raises(DataError, match=rf"{kind} [0-9a-f]+; expected [0-9a-f]+"),
    ):
        fetch(archive_of(site.address, sha256=sha256), tmp_path, retry=QUICK)
    assert list(tmp_path.iterdir()) == []


def test_more_bytes_than_published_are_refused(tmp_path: Path) -> None:
    with (
        web.serve(web.Site(CONTENT + b"more")) as site,
        pytest.raises(DataError, match=r"bytes; expected 2,048,000"),
    ):
        fetch(archive_of(site.address), tmp_path, retry=QUICK)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/octet-stream"])
def test_an_html_page_is_not_taken_for_the_file(content_type: str, tmp_path: Path) -> None:
    """Neither when the server says that it is one nor when it does not."""
    page = b"\n<!DOCTYPE html><title>Please log in</title>"
    with (
        web.serve(web.Site(page, content_type=content_type)) as site,
        pytest.raises(DataError, match=r"an HTML page; expected the file file.tar \(2,048,000"),
    ):
        fetch(archive_of(site.address), tmp_path, retry=QUICK)
    assert not (tmp_path / "file.tar").exists()


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(tmp_path: Path) -> None:
    with web.serve(web.Site(CONTENT, statuses=[503, 429])) as site:
        assert fetch(archive_of(site.address), tmp_path, retry=QUICK).exists()
    (tmp_path / "file.tar").unlink()
    with web.serve(web.Site(CONTENT, statuses=[404])) as site:
        with pytest.raises(DataError, match=r"the server answered 404; expected file.tar"):
            fetch(archive_of(site.address), tmp_path, retry=QUICK)
        assert len(site.asked) == 1


def test_offline_says_so_and_where_to_put_the_file(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # not listening: connections are refused
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/file.tar"
        with pytest.raises(DataError, match="offline") as raised:
            fetch(archive_of(address), tmp_path, retry=QUICK)
    words = str(raised.value)
    assert words.startswith(address)
    assert "after 3 attempts" in words
    assert "Connection refused" in words
    assert f"put it at {tmp_path / 'file.tar'}" in words
    assert list(tmp_path.iterdir()) == []


def test_only_web_addresses_are_opened(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected an http or https address"):
        fetch(archive_of("file:///etc/hostname"), tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(DataError, match=r"file.tar.partial: cannot be written"):
        fetch(archive_of("http://unused"), tmp_path / "taken")


def test_check_names_file_found_and_expected(tmp_path: Path) -> None:
    path = tmp_path / "file.tar"
    path.write_bytes(CONTENT)
    check_file(path, archive_of("", sha256=hashlib.sha256(CONTENT).hexdigest()))
    with pytest.raises(DataError, match=rf"file.tar: sha256 .*; expected {'0' * 64}"):
        check_file(path, archive_of("", sha256="0" * 64))


def fake_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    npm = folder / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}:/usr/bin:/bin")


MIRROR = NpmMirror("some-package@1.0.0", archive_of("https://example.org", b"packed"))


def test_npm_packs_the_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(
        tmp_path,
        monkeypatch,
        'test "$1 $2" = "pack some-package@1.0.0" && printf packed > file.tar',
    )
    path = fetch_by_npm(MIRROR, tmp_path / "data")
    assert path.read_bytes() == b"packed"
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.setenv("PATH", "")
    assert fetch_by_npm(MIRROR, tmp_path / "data") == path


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo no network >&2; exit 1",
            "npm pack some-package@1.0.0 failed; its output: no network",
        ),
        ("exit 0", "its output: nothing"),
        ("printf pecked > file.tar", "md5 .*; expected"),
    ],
)
def test_what_npm_gets_wrong_is_named_and_not_kept(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(tmp_path, monkeypatch, script)
    with pytest.raises(DataError, match=words):
        fetch_by_npm(MIRROR, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_without_npm_the_mirror_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        DataError, match="npm is not on the path; it is required to download some-pac"
    ):
        fetch_by_npm(MIRROR, tmp_path)
