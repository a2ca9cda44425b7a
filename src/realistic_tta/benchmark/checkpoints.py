"""Checkpoints of unfinished runs, from which runner.py resumes after an interruption.

The format is that of storage.py. A damaged or foreign file is ignored: the run then starts from the
beginning and gives the same results.
"""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor

from realistic_tta import AdaptedModel
from realistic_tta.errors import ResultsError, StateError
from realistic_tta.storage import leftovers, read_tensors, write_tensors

from .environment import versions
from .metrics import Metrics

KIND = "run"


def checkpoint_file(key: str, folder: Path) -> Path:
    """The path of a run's checkpoint."""
    return folder / "checkpoints" / f"{key}.safetensors"


def save(path: Path, adapted: AdaptedModel, metrics: Metrics) -> None:
    """Writes everything the rest of the run depends on, atomically."""
    state = adapted.state_dict().items()
    tensors = {name: value for name, value in state if isinstance(value, Tensor)}
    metadata = {"metrics": json.dumps(metrics.saved()), "versions": json.dumps(versions())}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, metadata, kind=KIND)
    except OSError as error:
        raise ResultsError(
            f"{path} could not be written ({error.strerror}); no partial file is left. "
            "Free some space or use another folder; the same command resumes"
        ) from error


def restore(path: Path, adapted: AdaptedModel, *, traced: bool = False) -> Metrics | None:
    """Loads the state into the adapted model and returns the metrics; None without a checkpoint.

    Ignores a checkpoint of another version, and one without a trace if `traced` asks for it.
    """
    try:
        tensors, metadata = read_tensors(path, kind=KIND)
        if json.loads(metadata["versions"]) != json.loads(json.dumps(versions())):
            return None
        found = json.loads(metadata["metrics"])
        if traced and found["trace"] is None:
            return None
        metrics = Metrics.restore(found)
        adapted.load_state_dict(tensors)
    except FileNotFoundError:
        return None
    except (StateError, TypeError, KeyError, ValueError, AttributeError):  # not written by `save`
        adapted.reset()
        return None
    return metrics


def delete(path: Path) -> None:
    """Removes the checkpoint of a finished run, and partial files of interrupted writes."""
    for each in (path, *leftovers(path)):
        each.unlink(missing_ok=True)
