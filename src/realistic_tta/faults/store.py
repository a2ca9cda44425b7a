"""What came out of trials, one small JSON file each: written whole, so that a kill costs one trial.

The places that were predicted wrongly are kept, not errors: table.py counts them as it needs to.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from realistic_tta.benchmark.environment import versions
from realistic_tta.benchmark.results import read_text, write_whole
from realistic_tta.benchmark.strict_json import is_number, is_whole, parse
from realistic_tta.errors import ResultsError

from .trial import Outcome, Trial


def path_of(trial: Trial, folder: Path) -> Path:
    """Where its outcome is kept."""
    return folder / "trials" / f"{trial.key}.json"


def write(trial: Trial, outcome: Outcome, folder: Path) -> None:
    """Keeps the outcome, with the versions of everything that it may depend on."""
    facts = {**dataclasses.asdict(trial), **outcome._asdict(), **versions()}
    write_whole(path_of(trial, folder), json.dumps(facts).encode())


def read(trial: Trial, folder: Path) -> Outcome | None:
    """The outcome, None if there is none yet; whatever else the file holds is refused."""
    path = path_of(trial, folder)
    if not path.exists():
        return None
    try:
        found = parse(read_text(path))
        outcome = Outcome(*(found[name] for name in Outcome._fields))
        _check(trial, outcome)
    except (ValueError, KeyError) as error:
        raise ResultsError(f"{path}: no outcome of a trial ({error}); remove it") from error
    return outcome


def _check(trial: Trial, outcome: Outcome) -> None:
    """Raises for figures that cannot be."""
    wrong: Any = outcome.wrong
    if not isinstance(wrong, list) or not all(map(is_whole, wrong)):
        raise ValueError("wrong is no list of places")
    if not set(wrong) <= set(range(trial.images)):
        raise ValueError(f"wrong has places outside 0 to {trial.images - 1}")
    if not is_whole(outcome.refused) or not is_whole(outcome.excluded):
        raise ValueError("refused and excluded are no numbers")
    if not is_number(outcome.seconds):
        raise ValueError("seconds is no number")
