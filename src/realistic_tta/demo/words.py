"""What the demo's figures say, for somebody who has never heard of the methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from realistic_tta.benchmark.results import Record

from .experiment import Setup

Errors = Mapping[tuple[str, int], float]  # (method, batch size) -> percent wrong
BEST, USUAL = "realistic", "tbn"
EXPLAINED = {  # where the statistics come from
    "source": "training",
    "tbn": "this batch",
    "alpha_bn": "training 9 : 1 batch",
    "adapt_bn": "both, by image counts",
    "tema": "the stream, averaged",
    "rectified_tema": "training and stream",
    "realistic": "both, as far as sure",
}


def errors_of(records: Iterable[Record], setup: Setup) -> dict[tuple[str, int], float]:
    """The figures of the table that are known; the source's holds for every batch size."""
    known: dict[tuple[str, int], float] = {}
    for record in records:
        if record.error is not None:
            sizes = setup.batch_sizes if record.method == "source" else (record.batch_size,)
            known |= {(record.method, size): record.error for size in sizes}
    return known


def breaks(errors: Errors, method: str, batch_size: int) -> bool:
    """Whether the method is known to be worse than leaving the network alone."""
    error, source = errors.get((method, batch_size)), errors.get(("source", batch_size))
    return error is not None and source is not None and error > source


def headline(errors: Errors, setup: Setup) -> str:
    """The result in two sentences; nothing if it lacks one of the three methods."""
    large, small = setup.batch_sizes[0], setup.batch_sizes[-1]
    source, ours = errors.get(("source", small)), errors.get((BEST, small))
    usual, usual_large = errors.get((USUAL, small)), errors.get((USUAL, large))
    if source is None or ours is None or usual is None or usual_large is None:
        return ""
    when = "One photograph at a time" if small == 1 else f"Seeing {small} photographs at once"
    return (
        f"{when}, {BEST} takes the error from {source:.1f} to {ours:.1f} %. "
        f"Batch statistics alone ({USUAL}) give {usual_large:.1f} % at {large} at once "
        f"and {usual:.1f} % at {small}."
    )
