"""What the demo's figures say, for somebody who has never heard of the methods."""

from __future__ import annotations

from collections.abc import Mapping

from .experiment import Cell, Setup

Errors = Mapping[Cell, Mapping[str, float]]
BEST, USUAL = "rectified_tema", "tbn"
EXPLAINED = {  # where the statistics come from
    "source": "training",
    "tbn": "this batch",
    "alpha_bn": "training 9 : 1 batch",
    "adapt_bn": "both, by image counts",
    "tema": "the stream, averaged",
    "rectified_tema": "training and stream",
}


def table(errors: Errors, setup: Setup) -> list[tuple[str, list[float | None]]]:
    """A row a method: its mean error at each batch size, None where it is not known yet."""
    sizes = setup.batch_sizes
    return [(method, [mean_error(errors, method, n) for n in sizes]) for method in setup.methods]


def mean_error(errors: Errors, method: str, batch_size: int) -> float | None:
    """Over the corruptions, in percent; the source's holds for every batch size."""
    sources = [cell for cell in errors if cell.method == "source"]
    cell = sources[0] if sources and method == "source" else Cell(method, batch_size)
    by_corruption = errors.get(cell)
    return sum(by_corruption.values()) / len(by_corruption) if by_corruption else None


def breaks(errors: Errors, method: str, batch_size: int) -> bool:
    """Whether the method is worse than leaving the network alone."""
    error = mean_error(errors, method, batch_size)
    source = mean_error(errors, "source", batch_size)
    return error is not None and source is not None and error > source


def headline(errors: Errors, setup: Setup) -> str:
    """The result in two sentences; nothing if it lacks one of the three methods."""
    large, small = setup.batch_sizes[0], setup.batch_sizes[-1]
    source, ours = mean_error(errors, "source", small), mean_error(errors, BEST, small)
    usual, usual_large = mean_error(errors, USUAL, small), mean_error(errors, USUAL, large)
    if source is None or ours is None or usual is None or usual_large is None:
        return ""
    when = "One photograph at a time" if small == 1 else f"Seeing {small} photographs at once"
    return (
        f"{when}, {BEST} takes the error from {source:.1f} to {ours:.1f} %. "
        f"Batch statistics alone ({USUAL}) give {usual_large:.1f} % at {large} at once "
        f"and {usual:.1f} % at {small}."
    )
