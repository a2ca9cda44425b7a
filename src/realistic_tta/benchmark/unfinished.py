"""The state of a run that has not come to its end: what runner.py goes on from after a kill."""

from __future__ import annotations

import io
from pathlib import Path

import torch

from realistic_tta.methods.base import AdaptedNetwork
from realistic_tta.results import write_whole

from .machine import versions
from .tally import Tally


def state_file(key: str, folder: Path) -> Path:
    """Where the state of an unfinished run is kept."""
    return folder / "unfinished" / f"{key}.pt"


def save(path: Path, adapted: AdaptedNetwork, tally: Tally) -> None:
    """Writes down everything the rest of the run depends on, whole or not at all."""
    content = io.BytesIO()
    state = {"method": adapted.state_dict(), "tally": tally.saved()}
    torch.save(state | {"versions": versions()}, content)
    write_whole(path, content.getvalue())


def restore(path: Path, adapted: AdaptedNetwork, *, traced: bool = False) -> Tally | None:
    """Puts the method where it was and returns the counts; None if there is nothing to go on from.

    One run is of one program: what another version has begun is begun anew. So is, if a trace is
    wanted, a run that was begun without.
    """
    if not path.exists():
        return None
    found = torch.load(path, map_location="cpu", weights_only=True)
    if found["versions"] != versions() or (traced and found["tally"]["trace"] is None):
        return None
    adapted.load_state_dict(found["method"])
    return Tally.restore(found["tally"])
