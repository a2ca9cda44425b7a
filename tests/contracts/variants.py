"""Every method, every wrapper and some nestings: the subjects of the contract."""

from __future__ import annotations

from typing import Any

import torch
from subjects import convolutional
from torch import Tensor, nn

from realistic_tta import METHODS, GuardSettings, ServedModel, adapt

Options = dict[str, Any]

# A guard that compares, trusts and rolls back within a few batches.
GUARD = GuardSettings(window=8, min_images=4, every=2, recent=4, patience=24, rest=8)

VARIANTS: dict[str, Options] = {name: {"method": name} for name in METHODS}
VARIANTS["cotta"] |= {"views": 3}
VARIANTS["adacontrast"] |= {"queue_size": 8, "refine_after": 3}
VARIANTS |= {
    "rectified_tema, one pass": {"method": "rectified_tema", "passes": 1},
    "rectified_tema, from source": {"method": "rectified_tema", "start": "source"},
    "rectified_tema, when needed": {"method": "rectified_tema", "second_pass": "when_needed"},
    "tema, fixed momentum": {"method": "tema", "momentum": 0.3},
    "tent, three steps": {"method": "tent", "steps": 3},
    "tent, episodic": {"method": "tent", "episodic": True},
    # Random models are confident of nothing: these options make every image reliable.
    "eta, learning": {"method": "eta", "entropy_threshold": 1.0, "margin": 2.0},
    "sar, learning": {"method": "sar", "entropy_threshold": 1.0},
    "cotta, confident": {"method": "cotta", "preset": "imagenet_c", "threshold": 0.0},
}
METHOD_VARIANTS = tuple(VARIANTS)
VARIANTS |= {
    "flip": {"method": "tema", "flip": True},
    "smooth_labels": {"method": "tema", "smooth_labels": True},
    "guard": {"method": "tema", "guard": GUARD},
    "nonfinite": {"method": "tema", "nonfinite": "skip"},
    "nonfinite, nan": {"method": "tema", "nonfinite": "skip", "nonfinite_output": "nan"},
    "compile": {"method": "tema", "compile": True},
    "tent in three": {"method": "tent", "guard": GUARD, "smooth_labels": True, "flip": True},
    "tent in nonfinite": {"method": "tent", "nonfinite": "skip", "guard": GUARD, "flip": True},
    "rectified_tema in all": {
        "method": "rectified_tema",
        "compile": True,
        "flip": True,
        "smooth_labels": True,
        "guard": GUARD,
        "nonfinite": "skip",
    },
}


def make(name: str, model: nn.Module | None = None, **options: Any) -> ServedModel:
    return adapt(model or convolutional(), **VARIANTS[name] | options)


def trains(name: str) -> bool:
    return "optimizer" in METHODS[VARIANTS[name]["method"]].settings_type.names()


def predictions(adapted: nn.Module, batches: list[Tensor]) -> list[Tensor]:
    return [adapted(batch) for batch in batches]


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def method_only(name: str) -> Options:
    """The same options without wrappers."""
    wrappers = ("flip", "smooth_labels", "guard", "nonfinite", "nonfinite_output", "compile")
    return {key: value for key, value in VARIANTS[name].items() if key not in wrappers}


def without_counters(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state without the counts that continue over a reset."""
    counts = ("counters", "skipped")
    return {key: value for key, value in state.items() if key.rpartition(".")[2] not in counts}
