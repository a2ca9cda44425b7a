"""Results: one record per experiment, kept as one JSON file each.

Files are written atomically (storage.py), by any number of processes, on local and network disks.
docs/reference/result_fields.md explains the fields; exports.py makes tables of them.
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

from .strict_json import check_fields, is_integer, is_number, parse

SCHEMA = 3  # raised when a field changes its name or its meaning
ABOUT = "schema.json"
DONE, FAILED = "done", "failed"
DEFAULT_SEVERITY = 5
FIRST_IMAGES = (10, 50, 200)  # of a part, whose errors are counted separately


class PartResult(NamedTuple):
    """Counts of one corruption at one severity.

    wrong_in_first: number wrong among the first images of the part, for each of FIRST_IMAGES.
    """

    corruption: str
    severity: int
    images: int
    wrong: int
    wrong_in_first: tuple[int, ...]

    @property
    def error(self) -> float:
        """Error in percent."""
        return 100 * self.wrong / self.images


def row_name(method: str, hyperparameters: Mapping[str, Any]) -> str:
    """The label of a method with these hyperparameters in tables and plots.

    >>> row_name("tema", {}), row_name("tema", {"start": "source"})
    ('tema', 'tema (start=source)')
    """
    chosen = ", ".join(f"{name}={value}" for name, value in sorted(hyperparameters.items()))
    return f"{method} ({chosen})" if chosen else method


@dataclass(frozen=True)
class Record:
    """The result of one experiment; docs/reference/result_fields.md explains every field."""

    key: str
    experiment: str
    model: str
    dataset: str
    scenario: str
    method: str
    hyperparameters: dict[str, Any]
    batch_size: int
    seed: int
    images: int | None
    order: str
    delta: float | None
    severity: int
    stream: str
    model_checksum: str
    status: Literal["done", "failed"]
    message: str | None = None
    error: float | None = None
    parts: tuple[PartResult, ...] = ()
    error_curve: tuple[tuple[int, float], ...] = ()
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

    @property
    def row(self) -> str:
        """The method with its non-default hyperparameters, as tables and plots name it."""
        return row_name(self.method, self.hyperparameters)

    def to_json(self) -> str:
        """The content of the file; floats are exact."""
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, where: str = "record") -> Self:
        """Reads and validates a record."""
        try:
            found = parse(text)
            check_fields(found, {each.name: str(each.type) for each in dataclasses.fields(cls)})
            found["parts"] = tuple(_part(*part) for part in found["parts"])
            found["error_curve"] = tuple(_point(*point) for point in found["error_curve"])
            record = cls(**found)
            _check(record)
            return record  # noqa: TRY300 - one step after another
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{where} is not a record of schema {SCHEMA} ({error})") from error


def _part(corruption: Any, severity: Any, images: Any, wrong: Any, first: Any) -> PartResult:
    known = isinstance(first, list) and len(first) == len(FIRST_IMAGES)
    counts: list[Any] = [0, *first, wrong, images] if known else [None]
    good = isinstance(corruption, str) and all(map(is_integer, (severity, *counts)))
    if not good or counts != sorted(counts) or images < 1:
        raise ValueError(f"a part is {[corruption, severity, images, wrong, first]}")
    return PartResult(corruption, severity, images, wrong, tuple(first))


def _point(seen: Any, error: Any) -> tuple[int, float]:
    if not is_integer(seen) or not is_number(error):
        raise ValueError(f"a point of error_curve is {[seen, error]}")
    return seen, error


def _check(record: Record) -> None:
    if not re.fullmatch(r"[\w-]+", record.key):
        raise ValueError(f"key is {record.key!r}; expected letters and digits, as in file names")
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
            raise ResultsError(f"{folder}: no results; `rtta bench --out {folder}` creates some")
        else:
            write_file(about, json.dumps({"schema": SCHEMA}).encode())

    def write(self, record: Record) -> None:
        """Stores the record, unless there is a finished one already."""
        if not self.done(record.key):
            write_file(self._path(record.key, record.status), record.to_json().encode())

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
        """All records, by key, whose fields equal the given value or one of the given values.

        A failed record is left out once the experiment has a finished one.
        """
        for name in equals:
            if name not in FIELDS:
                raise ResultsError(unknown("field", name, FIELDS))
        keys = sorted({path.name.split(".")[0] for path in self.records.glob("[!.]*.json")})
        return [
            record
            for record in map(self.get, keys)
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
        found = "unreadable"
    if found != SCHEMA:
        raise ResultsError(
            f"{about}: schema is {found}; expected {SCHEMA}. "
            "Use another folder, or the version that wrote this one"
        )


def read_text(path: Path) -> str:
    """The content of a text file of results."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} cannot be read ({error}); delete it and rerun") from error


def write_file(path: Path, content: bytes) -> None:
    """Writes a file atomically and creates its folder; raises ResultsError if it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    except OSError as error:
        raise ResultsError(
            f"{path} could not be written ({error.strerror}); no partial file is left. "
            "Free some space or use another folder; the same command resumes"
        ) from error
