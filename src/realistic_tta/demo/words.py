"""What the demo's figures say, for somebody who has never heard of the methods."""

from __future__ import annotations

from collections.abc import Mapping

from .experiment import BATCH_SIZES, METHODS, Cell

BEST = "rectified_tema"
EXPLAINED = {  # where the statistics come from
    "source": "training",
    "tbn": "this batch",
    "alpha_bn": "training 9 : 1 batch",
    "adapt_bn": "both, by image counts",
    "tema": "the stream, averaged",
    "rectified_tema": "training and stream",
}


def table(errors: Mapping[Cell, Mapping[str, float]]) -> list[tuple[str, list[float | None]]]:
    """A row a method: its mean error at each batch size, None where it is not known yet."""
    return [(method, [mean_error(errors, method, n) for n in BATCH_SIZES]) for method in METHODS]


def mean_error(
    errors: Mapping[Cell, Mapping[str, float]], method: str, batch_size: int
) -> float | None:
    """Over the corruptions, in percent; the source's holds for every batch size."""
    size = BATCH_SIZES[0] if method == "source" else batch_size
    by_corruption = errors.get(Cell(method, size))
    return sum(by_corruption.values()) / len(by_corruption) if by_corruption else None


def breaks(errors: Mapping[Cell, Mapping[str, float]], method: str, batch_size: int) -> bool:
    """Whether the method is worse than leaving the network alone."""
    error = mean_error(errors, method, batch_size)
    source = mean_error(errors, "source", batch_size)
    return error is not None and source is not None and error > source


def headline(errors: Mapping[Cell, Mapping[str, float]]) -> str:
    """The result in two sentences."""
    large, small = BATCH_SIZES[0], BATCH_SIZES[-1]
    source, ours, usual, usual_large = (
        mean_error(errors, *cell)
        for cell in (("source", small), (BEST, small), ("tbn", small), ("tbn", large))
    )
    return (
        f"One photograph at a time, {BEST} takes the error from {source:.1f} to {ours:.1f} %. "
        f"The usual remedy, tbn, is right for {large} at once ({usual_large:.1f} %) "
        f"and leaves {usual:.1f} % wrong at {small}."
    )
