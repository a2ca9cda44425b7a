"""Results: one record a finished experiment, kept as one JSON file each.

A file is written under another name, synced and renamed: it is whole or it is not there, on local
and on network disks, however many processes write at once. (Lines appended to one file would be
torn by a power cut, and by two writers on a network disk.) docs/result_fields.md says what the
fields mean; exports.py makes tables of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from .errors import ResultsError, unknown

SCHEMA = 1  # raised when a field changes its meaning
ABOUT = "schema.json"
DONE, FAILED = "done", "failed"
PARTIAL = ".partial"  # how the name of a file ends while it is written


class PartResult(NamedTuple):
    """One corruption at one severity."""

    corruption: str
    severity: int
    images: int
    wrong: int

    @property
    def error(self) -> float:
        """Percent."""
        return 100 * self.wrong / self.images


@dataclass(frozen=True)
class Record:
    """What is known of one experiment; docs/result_fields.md explains every field."""

    key: str
    experiment: str
    network: str
    data: str
    setting: str
    method: str
    settings: dict[str, Any]
    batch_size: int
    seed: int
    images: int | None
    order: str
    delta: float | None
    stream: str
    network_checksum: str
    status: Literal["done", "failed"]
    message: str | None = None
    error: float | None = None
    parts: tuple[PartResult, ...] = ()
    course: tuple[tuple[int, float], ...] = ()
    seconds: float | None = None
    method_seconds: float | None = None
    cost: float | None = None
    peak_memory: float | None = None
    resumed: int = 0
    finished: str = ""
    device: str = ""
    python: str = ""
    torch: str = ""
    package: str = ""
    commit: str | None = None
    schema: int = SCHEMA

    def to_json(self) -> str:
        """As it is kept on disk; numbers to the last bit."""
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, where: str = "record") -> Self:
        """Read back; anything that is not such a record is refused."""
        try:
            found = json.loads(text)
            found["parts"] = tuple(PartResult(*part) for part in found["parts"])
            found["course"] = tuple((int(seen), error) for seen, error in found["course"])
            return cls(**found)
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{where}: no record of schema {SCHEMA} ({error})") from error


FIELDS = tuple(field.name for field in dataclasses.fields(Record))


class Results:
    """A folder of records."""

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        self.folder = folder
        self.records = folder / "records"
        about = folder / ABOUT
        if about.exists():
            _check_schema(about)
        elif not create:
            raise ResultsError(f"{folder}: no results; `rtta bench --out {folder}` makes some")
        else:
            write_whole(about, json.dumps({"schema": SCHEMA}).encode())

    def write(self, record: Record) -> None:
        """Keeps the record; one that is there and done stays."""
        if not self.done(record.key):
            write_whole(self._path(record.key, record.status), record.to_json().encode())

    def done(self, key: str) -> bool:
        """Whether there is a finished record; a failed one does not count."""
        return self._path(key, DONE).exists()

    def get(self, key: str) -> Record:
        """The finished record of that key, else the failed one."""
        path = self._path(key, DONE if self.done(key) else FAILED)
        if not path.exists():
            raise ResultsError(f"{self.folder}: no record {key}")
        return Record.from_json(path.read_text(), str(path))

    def read(self, **equals: Any) -> list[Record]:
        """All records, by key, whose fields equal what is given (a value, or one of several).

        A failure is left out once the experiment has been done.
        """
        for name in equals:
            if name not in FIELDS:
                raise ResultsError(unknown("field", name, FIELDS))
        keys = sorted({path.name.split(".")[0] for path in self.records.glob("[!.]*.json")})
        records = [self.get(key) for key in keys]
        return [
            record
            for record in records
            if all(_fits(getattr(record, name), value) for name, value in equals.items())
        ]

    def _path(self, key: str, status: str) -> Path:
        return self.records / (f"{key}.json" if status == DONE else f"{key}.failed.json")


def _fits(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Collection) and not isinstance(wanted, str | dict):
        return found in wanted
    return bool(found == wanted)


def _check_schema(about: Path) -> None:
    try:
        found = json.loads(about.read_text())["schema"]
    except (ValueError, TypeError, KeyError):
        found = "nothing that can be read"
    if found != SCHEMA:
        raise ResultsError(
            f"{about} says schema {found}; expected {SCHEMA}. "
            "Give another folder, or read this one with the version that wrote it"
        )


def write_whole(path: Path, content: bytes) -> None:
    """Afterwards `path` holds all of it; or, after an error or a power cut, what it held before."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
        _sync_folder(path.parent)
    except OSError as error:
        raise ResultsError(
            f"{path} could not be written ({error.strerror}); nothing half-written is left. "
            "Make room or give another folder; the same command goes on"
        ) from error


def leftovers(path: Path) -> list[Path]:
    """What processes that were killed while they wrote `path` have left: hidden, read by nobody."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"))


def _sync_folder(folder: Path) -> None:
    """So that the new name, too, outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
