"""Groups records into figures and lines, and names what is missing for a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from realistic_tta.benchmark.exports import latest
from realistic_tta.benchmark.results import DEFAULT_SEVERITY, DONE, Record
from realistic_tta.benchmark.traces import Trace
from realistic_tta.errors import ResultsError

from .style import place

Traces = Callable[[str], Trace | None]  # the trace of a record, by its key


class Group(NamedTuple):
    """The choices that the records of one figure share."""

    dataset: str
    model: str
    scenario: str
    images: int | None
    order: str
    delta: float | None
    severity: int

    def title(self) -> str:
        """The title of a figure.

        >>> Group("cifar10-c", "wrn-28-10", "continual", 100, "shuffled", None, 5).title()
        'cifar10-c, model wrn-28-10, continual, 100 images per corruption'
        """
        rest = self._rest("{} images per corruption", "order {}", "delta {}", "severity {}")
        return ", ".join([self.dataset, f"model {self.model}", self.scenario, *rest])

    def stem(self) -> str:
        """The stem of file names.

        >>> Group("cifar10-c", "wrn-28-10", "continual", 100, "shuffled", None, 5).stem()
        'cifar10-c.wrn-28-10.continual.100-images'
        """
        rest = self._rest("{}-images", "{}", "delta-{}", "severity-{}")
        return ".".join([self.dataset, self.model, self.scenario, *rest])

    def _rest(self, *words: str) -> list[str]:
        order = None if self.order == "shuffled" else self.order
        severity = None if self.severity == DEFAULT_SEVERITY else self.severity
        values = (self.images, order, self.delta, severity)
        pairs = zip(words, values, strict=True)
        return [word.format(value) for word, value in pairs if value is not None]


def group_of(record: Record) -> Group:
    """The group of the record."""
    return Group(*(getattr(record, name) for name in Group._fields))


def by_group(records: Sequence[Record]) -> dict[Group, list[Record]]:
    """Finished records, the newest of each experiment, by group."""
    groups: dict[Group, list[Record]] = {}
    done = [record for record in latest(records) if record.status == DONE]
    for record in sorted(done, key=lambda each: (*map(str, group_of(each)), each.key)):
        groups.setdefault(group_of(record), []).append(record)
    return groups


def lines(records: Sequence[Record]) -> dict[str, dict[int, list[Record]]]:
    """The seeds by line and ascending batch size; lines in the order of legends.

    Records with a fixed momentum are left out; momentum_analysis shows them.
    """
    found: dict[str, dict[int, list[Record]]] = {}
    for record in sorted(records, key=lambda each: (each.batch_size, each.seed)):
        if "momentum" not in record.hyperparameters:
            found.setdefault(record.row, {}).setdefault(record.batch_size, []).append(record)
    return {name: found[name] for name in sorted(found, key=place)}


def one_group(records: Sequence[Record], figure: str) -> Group:
    """The group of all records; raises ResultsError unless there is exactly one."""
    groups = {group_of(record) for record in records}
    if len(groups) == 1:
        return groups.pop()
    if not groups:
        raise missing(figure, "finished experiments", records)
    raise ResultsError(f"{figure} shows one group of records; got {len(groups)}: use by_group")


def sizes_of(records: Sequence[Record]) -> Counter[int]:
    """The number of lines by batch size."""
    return Counter(size for line in lines(records).values() for size in line)


def extremes(lines_at: Mapping[int, int]) -> list[int]:
    """The largest and the smallest batch size with the most lines.

    lines_at: number of lines by batch size.

    >>> extremes({200: 1, 64: 3, 4: 3, 1: 3}), extremes({4: 2})
    ([64, 1], [4])
    """
    most = [size for size, count in lines_at.items() if count == max(lines_at.values())]
    return sorted({max(most), min(most)}, reverse=True)


def missing(figure: str, what: str, records: Sequence[Record], **options: Any) -> ResultsError:
    """The error for a figure that lacks records, with the command that creates them.

    >>> print(missing("cost", "two methods", [], methods="source,tema"))
    cost needs two methods; `rtta bench --methods source,tema` creates that
    """
    words = ["rtta bench"]
    if records:
        group = group_of(records[0])
        words += [f"--datasets {group.dataset} --models {group.model} --scenarios {group.scenario}"]
        words += [f"--images {group.images}"] if group.images is not None else []
    words += [f"--{name.replace('_', '-')} {value}".rstrip() for name, value in options.items()]
    return ResultsError(f"{figure} needs {what}; `{' '.join(words)}` creates that")
