"""The main results in sentences: how much adaptation helps, and which methods fail where.

errors: percent by method and batch size, any of them missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

Errors = Mapping[tuple[str, int], float]
SOURCE = "source"


def headline(errors: Errors) -> list[str]:
    """One to three sentences, for any set of results.

    >>> headline({("source", 4): 40.0, ("tema", 4): 30.0})[0]
    'At batch size 4, tema changes the error from 40.0 to 30.0 %.'
    """
    source = [error for (method, _), error in errors.items() if method == SOURCE]
    methods = [name for name in dict.fromkeys(method for method, _ in errors) if name != SOURCE]
    if not errors:
        return ["No experiment has finished."]
    if not methods:
        return [f"The source model has {fmean(source):.1f} % error; no method was measured."]
    sizes = [size for size in _sizes(errors) if best_at(errors, size)]
    ends = dict.fromkeys((sizes[0], sizes[-1]))
    if not source:
        lowest = [
            f"{_best(errors, n):.1f} % at batch size {n} ({best_at(errors, n)})" for n in ends
        ]
        return [f"Lowest error: {', '.join(lowest)}.", "The source model was not measured."]
    if all(_best(errors, size) >= source_at(errors, size) for size in sizes):
        near = min(sizes, key=lambda size: _best(errors, size))
        first = (
            f"No method beats the source model ({source_at(errors, near):.1f} % error); "
            f"closest: {best_at(errors, near)} {_best(errors, near):.1f} %."
        )
    else:
        gains = "; ".join(_gain(errors, size) for size in ends)
        first = f"{gains[0].upper()}{gains[1:]}."
    return [first, *_failures(errors, methods)]


def source_at(errors: Errors, size: int) -> float:
    """The source model's error; any batch size will do, as it does not depend on it."""
    found = [error for (method, _), error in errors.items() if method == SOURCE]
    return errors.get((SOURCE, size), fmean(found))


def worse_at(errors: Errors, method: str) -> list[int]:
    """The batch sizes at which the method is worse than the source model, descending."""
    return [n for n in _sizes(errors, method) if errors[method, n] > source_at(errors, n)]


def best_at(errors: Errors, size: int) -> str | None:
    """The best method at a batch size, without the source model."""
    found = {m: error for (m, n), error in errors.items() if n == size and m != SOURCE}
    return min(found, key=lambda method: found[method]) if found else None


def _best(errors: Errors, size: int) -> float:
    return errors[str(best_at(errors, size)), size]


def _gain(errors: Errors, size: int) -> str:
    best, before, after = best_at(errors, size), source_at(errors, size), _best(errors, size)
    if after >= before:
        return f"at batch size {size} no method beats the source model ({before:.1f} %)"
    return f"at batch size {size}, {best} changes the error from {before:.1f} to {after:.1f} %"


def _failures(errors: Errors, methods: Sequence[str]) -> list[str]:
    """The methods that are worse than the source model, and those that never are."""
    worse = {method: worse_at(errors, method) for method in methods}
    never = [method for method in methods if not worse[method]]
    parts = [f"{m} {_where(_sizes(errors, m), sizes)}" for m, sizes in worse.items() if sizes]
    if not parts:
        return ["No method is worse than the source model at any batch size measured."]
    sentences = [f"Worse than the source model: {'; '.join(parts)}."]
    return [*sentences, f"Never worse: {', '.join(never)}."] if never else sentences


def _where(measured: Sequence[int], worse: Sequence[int]) -> str:
    """The batch sizes in words; both lists are descending.

    >>> _where([200, 16, 4], [16, 4]), _where([200, 16, 4], [200, 4]), _where([4], [4])
    ('from 16 down', 'at 200 and 4', 'at 4')
    """
    if len(worse) == 1:
        return f"at {worse[0]}"
    if len(worse) == len(measured):
        return "at every batch size"
    if list(worse) == list(measured[-len(worse) :]):
        return f"from {worse[0]} down"
    return f"at {', '.join(map(str, worse[:-1]))} and {worse[-1]}"


def _sizes(errors: Errors, method: str | None = None) -> list[int]:
    return sorted({size for name, size in errors if method in (None, name)}, reverse=True)
