"""Results: one record a finished experiment, kept as one JSON file each.

A file is whole or it is not there (whole_files.py), on local and on network disks, however many
processes write at once. (Lines appended to one file would be
torn by a power cut, and by two writers on a network disk.) docs/result_fields.md says what the
fields mean; exports.py makes tables of them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from realistic_tta.errors import ResultsError, unknown
from realistic_tta.storage import atomic_write

from .strict_json import check_fields, is_number, is_whole, parse

SCHEMA = 1  # raised when a field changes its meaning
ABOUT = "schema.json"
DONE, FAILED = "done", "failed"


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


def row_name(method: str, settings: Mapping[str, Any]) -> str:
    """How tables and plots call a method that was run with these settings.

    >>> row_name("tema", {}), row_name("tema", {"start": "source"})
    ('tema', 'tema (start=source)')
    """
    told = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
    return f"{method} ({told})" if told else method


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
    replay: bool = False
    peak_memory: float | None = None
    resumed: int = 0
    finished: str = ""
    device: str = ""
    python: str = ""
    torch: str = ""
    package: str = ""
    commit: str | None = None
    schema: int = SCHEMA

    @property
    def row(self) -> str:
        """In tables and plots: the method, with its settings where they are not its defaults."""
        return row_name(self.method, self.settings)

    def to_json(self) -> str:
        """As it is kept on disk; numbers to the last bit."""
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, where: str = "record") -> Self:
        """Read back; anything that is not such a record is refused."""
        try:
            found = parse(text)
            check_fields(found, {each.name: str(each.type) for each in dataclasses.fields(cls)})
            found["parts"] = tuple(_part(*part) for part in found["parts"])
            found["course"] = tuple(_point(*point) for point in found["course"])
            record = cls(**found)
            _check(record)
            return record  # noqa: TRY300 - one step after another
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{where}: no record of schema {SCHEMA} ({error})") from error


def _part(corruption: Any, severity: Any, images: Any, wrong: Any) -> PartResult:
    good = isinstance(corruption, str) and all(map(is_whole, (severity, images, wrong)))
    if not good or not 0 <= wrong <= images or images < 1:
        raise ValueError(f"a part is {[corruption, severity, images, wrong]}")
    return PartResult(corruption, severity, images, wrong)


def _point(seen: Any, error: Any) -> tuple[int, float]:
    if not is_whole(seen) or not is_number(error):
        raise ValueError(f"a point of the course is {[seen, error]}")
    return seen, error


def _check(record: Record) -> None:
    """Names that lead elsewhere, and figures that cannot be."""
    if not re.fullmatch(r"[\w-]+", record.key):
        raise ValueError(f"key is {record.key!r}; expected letters and digits, as it names files")
    if record.schema != SCHEMA:
        raise ValueError(f"schema is {record.schema}")
    if record.batch_size < 1:
        raise ValueError(f"batch_size is {record.batch_size}; expected 1 or more")


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
        return Record.from_json(read_text(path), str(path))

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
        found = parse(read_text(about))["schema"]
    except (ValueError, KeyError):
        found = "nothing that can be read"
    if found != SCHEMA:
        raise ResultsError(
            f"{about} says schema {found}; expected {SCHEMA}. "
            "Give another folder, or read this one with the version that wrote it"
        )


def read_text(path: Path) -> str:
    """The whole file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} cannot be read ({error}); remove it and run again") from error


def write_whole(path: Path, content: bytes) -> None:
    """As `atomic_write`, in a folder that need not be there; errors say what to do."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    except OSError as error:
        raise ResultsError(
            f"{path} could not be written ({error.strerror}); nothing half-written is left. "
            "Make room or give another folder; the same command goes on"
        ) from error
