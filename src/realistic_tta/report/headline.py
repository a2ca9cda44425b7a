"""What the figures say, in sentences: how much adaptation helps, and who breaks where.

errors: percent wrong by method and batch size, any of them missing. Used by page_data.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

Errors = Mapping[tuple[str, int], float]
SOURCE = "source"


def headline(errors: Errors) -> list[str]:
    """One to three sentences, for whatever was measured.

    >>> headline({("source", 4): 40.0, ("tema", 4): 30.0})[0]
    'At batch size 4, tema takes the error from 40.0 to 30.0 %.'
    """
    if not errors:
        return ["No experiment has finished."]
    if not _methods(errors):
        return [f"The network alone names {_source(errors):.1f} % wrong; no method was measured."]
    if _source(errors) is None:
        told = "Without a record of `source`, how much adaptation helps cannot be said."
        return [_lowest(errors), told]
    return [_help(errors), *_breaks(errors)]


def source_at(errors: Errors, size: int) -> float | None:
    """The plain network's error; it does not depend on the batch size, so any will do."""
    return errors.get((SOURCE, size), _source(errors))


def broken_at(errors: Errors, method: str) -> list[int]:
    """Batch sizes at which the method is worse than leaving the network alone, large to small."""
    return [size for size in _sizes(errors, method) if errors[method, size] > _known(errors, size)]


def _help(errors: Errors) -> str:
    """The best method at the largest and at the smallest batch size."""
    sizes = [size for size in _sizes(errors) if _best(errors, size)]
    ends = list(dict.fromkeys((sizes[0], sizes[-1])))
    if all(_best_error(errors, size) >= _known(errors, size) for size in sizes):
        near = min(sizes, key=lambda n: _best_error(errors, n))
        return (
            f"No method beats the network alone, which names {_known(errors, near):.1f} % wrong; "
            f"nearest: {_best(errors, near)} {_best_error(errors, near):.1f} %."
        )
    return f"{'; '.join(_gain(errors, size) for size in ends)}."


def _gain(errors: Errors, size: int) -> str:
    best, before, after = _best(errors, size), _known(errors, size), _best_error(errors, size)
    start = "At" if size == max(_sizes(errors)) else "at"
    if after >= before:
        return f"{start} batch size {size} no method beats the network alone ({before:.1f} %)"
    return f"{start} batch size {size}, {best} takes the error from {before:.1f} to {after:.1f} %"


def _breaks(errors: Errors) -> list[str]:
    """Who is worse than no adaptation, and who never is."""
    methods = _methods(errors)
    broken = {method: broken_at(errors, method) for method in methods}
    safe = [method for method in methods if not broken[method]]
    told = [f"{m} {_where(_sizes(errors, m), sizes)}" for m, sizes in broken.items() if sizes]
    sentences = [f"Worse than no adaptation: {'; '.join(told)}."] if told else []
    if safe and told:
        sentences.append(f"Never worse: {', '.join(safe)}.")
    elif safe:
        sentences.append("No method is worse than no adaptation at any batch size measured.")
    return sentences


def _where(measured: Sequence[int], broken: Sequence[int]) -> str:
    """In words; both from large to small.

    >>> _where([200, 16, 4], [16, 4]), _where([200, 16, 4], [200, 4]), _where([4], [4])
    ('from 16 down', 'at 200 and 4', 'at 4')
    """
    if len(broken) == 1:
        return f"at {broken[0]}"
    if len(broken) == len(measured):
        return "at every batch size"
    if list(broken) == list(measured[-len(broken) :]):
        return f"from {broken[0]} down"
    return f"at {', '.join(map(str, broken[:-1]))} and {broken[-1]}"


def _lowest(errors: Errors) -> str:
    sizes = _sizes(errors)
    ends = list(dict.fromkeys((sizes[0], sizes[-1])))
    told = [f"{_best_error(errors, n):.1f} % at batch size {n} ({_best(errors, n)})" for n in ends]
    return f"Lowest error: {', '.join(told)}."


def _methods(errors: Errors) -> list[str]:
    """All but the source, in the order they first come."""
    return [each for each in dict.fromkeys(method for method, _ in errors) if each != SOURCE]


def _sizes(errors: Errors, method: str | None = None) -> list[int]:
    found = {size for name, size in errors if method in (None, name)}
    return sorted(found, reverse=True)


def _source(errors: Errors) -> float | None:
    found = [error for (method, _), error in errors.items() if method == SOURCE]
    return fmean(found) if found else None


def _known(errors: Errors, size: int) -> float:
    source = source_at(errors, size)
    assert source is not None, "asked only where there is a source"
    return source


def _best(errors: Errors, size: int) -> str | None:
    found = {m: error for (m, n), error in errors.items() if n == size and m != SOURCE}
    return min(found, key=lambda method: found[method]) if found else None


def _best_error(errors: Errors, size: int) -> float:
    return min(error for (m, n), error in errors.items() if n == size and m != SOURCE)
