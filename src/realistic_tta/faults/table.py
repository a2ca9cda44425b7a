"""Errors on good samples, before, during and after a fault, as a table in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .trial import NO_FAULT, Outcome, Trial

Outcomes = Mapping[Trial, Outcome]


class Errors(NamedTuple):
    """In percent of the good samples of each third of the stream."""

    before: float
    during: float
    after: float


def errors(outcomes: Outcomes, subject: str, fault: str, share: float) -> Errors | None:
    """Of all streams together; None while one of them is not done.

    Without a fault the same samples count as with one of this share.
    """
    chosen = [
        (trial, outcome)
        for trial, outcome in outcomes.items()
        if trial.subject == subject
        and trial.fault == fault
        and trial.share in (share, *([0] if fault == NO_FAULT else []))
    ]
    if not chosen:
        return None
    wrong, all_of = [0, 0, 0], [0, 0, 0]
    for trial, outcome in chosen:
        left_out = set(trial.faulty(share))
        for third, places in enumerate(trial.thirds):
            good = set(places) - left_out
            all_of[third] += len(good)
            wrong[third] += len(good.intersection(outcome.wrong))
    return Errors(*(100 * w / n if n else 0.0 for w, n in zip(wrong, all_of, strict=True)))


def table(
    outcomes: Outcomes, subjects: Sequence[str], faults: Sequence[str], share: float
) -> list[str]:
    """A row a method, a column a fault: during / after."""
    rows = [["method", "before", "no fault", *(fault.replace("_", " ") for fault in faults)]]
    rows += [["---"] * len(rows[0])]
    for subject in subjects:
        reference = errors(outcomes, subject, NO_FAULT, share)
        before = "-" if reference is None else f"{reference.before:.1f}"
        found = [reference, *(errors(outcomes, subject, fault, share) for fault in faults)]
        rows.append([subject.replace("+", ", "), before, *map(_cell, found)])
    return [f"| {' | '.join(row)} |" for row in rows]


def _cell(found: Errors | None) -> str:
    return "-" if found is None else f"{found.during:.1f} / {found.after:.1f}"
