"""Which records belong into one figure, what their lines are called, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from realistic_tta.benchmark.exports import latest
from realistic_tta.benchmark.results import DONE, Record
from realistic_tta.benchmark.trace_files import Trace
from realistic_tta.errors import ResultsError

from .style import place

Traces = Callable[[str], Trace | None]  # the trace of a record, by its key


class Group(NamedTuple):
    """What the records of one figure have in common."""

    data: str
    network: str
    setting: str
    images: int | None
    order: str
    delta: float | None

    def title(self) -> str:
        """For people.

        >>> Group("cifar10-c", "wrn-28-10", "continual", 100, "shuffled", None).title()
        'cifar10-c, network wrn-28-10, continual, 100 images of every corruption'
        """
        rest = self._rest("{} images of every corruption", "order {}", "delta {}")
        return ", ".join([self.data, f"network {self.network}", self.setting, *rest])

    def stem(self) -> str:
        """For names of files.

        >>> Group("cifar10-c", "wrn-28-10", "continual", 100, "shuffled", None).stem()
        'cifar10-c.wrn-28-10.continual.100-images'
        """
        rest = self._rest("{}-images", "{}", "delta-{}")
        return ".".join([self.data, self.network, self.setting, *rest])

    def _rest(self, *words: str) -> list[str]:
        """What differs from the default."""
        values = (self.images, None if self.order == "shuffled" else self.order, self.delta)
        pairs = zip(words, values, strict=True)
        return [word.format(value) for word, value in pairs if value is not None]


def group_of(record: Record) -> Group:
    """The figure that the record belongs into."""
    return Group(*(getattr(record, name) for name in Group._fields))


def by_group(records: Sequence[Record]) -> dict[Group, list[Record]]:
    """Finished records, the newest of each experiment, by figure."""
    groups: dict[Group, list[Record]] = {}
    done = [record for record in latest(records) if record.status == DONE]
    for record in sorted(done, key=lambda each: (*map(str, group_of(each)), each.key)):
        groups.setdefault(group_of(record), []).append(record)
    return groups


def lines(records: Sequence[Record]) -> dict[str, dict[int, list[Record]]]:
    """By line and batch size, the seeds of each; lines as legends list them, sizes growing.

    A momentum fixed by hand is for the figure about momentum, and left out.
    """
    found: dict[str, dict[int, list[Record]]] = {}
    for record in sorted(records, key=lambda each: (each.batch_size, each.seed)):
        if "momentum" not in record.settings:
            found.setdefault(record.row, {}).setdefault(record.batch_size, []).append(record)
    return {name: found[name] for name in sorted(found, key=place)}


def one_group(records: Sequence[Record], figure: str) -> Group:
    """The group that all records are of; an error if there is none, or more than one."""
    groups = {group_of(record) for record in records}
    if len(groups) == 1:
        return groups.pop()
    if not groups:
        raise missing(figure, "finished experiments", records)
    raise ResultsError(f"{figure} shows one group of records; got {len(groups)}: use by_group")


def sizes_of(records: Sequence[Record]) -> Counter[int]:
    """Batch sizes, each with the number of lines that have it."""
    return Counter(size for line in lines(records).values() for size in line)


def extremes(lines_at: Mapping[int, int]) -> list[int]:
    """The largest and the smallest of the batch sizes at which most lines can be compared.

    lines_at: how many lines there are, by batch size.

    >>> extremes({200: 1, 64: 3, 4: 3, 1: 3}), extremes({4: 2})
    ([64, 1], [4])
    """
    most = [size for size, count in lines_at.items() if count == max(lines_at.values())]
    return sorted({max(most), min(most)}, reverse=True)


def missing(figure: str, what: str, records: Sequence[Record], **options: Any) -> ResultsError:
    """What a figure lacks, and the command that makes it: for the records' own data, if any.

    >>> print(missing("cost", "two methods", [], methods="source,tema"))
    cost needs two methods; `rtta bench --methods source,tema` makes that
    """
    words = ["rtta bench"]
    if records:
        group = group_of(records[0])
        words += [f"--data {group.data} --network {group.network} --setting {group.setting}"]
        words += [f"--images {group.images}"] if group.images is not None else []
    words += [f"--{name.replace('_', '-')} {value}".rstrip() for name, value in options.items()]
    return ResultsError(f"{figure} needs {what}; `{' '.join(words)}` makes that")
