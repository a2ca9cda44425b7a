"""A call that raises at any line of Python happened wholly or not at all, for every method."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
import torch
from subjects import convolutional, images, is_free, same, snapshot
from torch import Tensor

from realistic_tta import METHODS, GuardSettings, ServedModel, adapt

MOST = 1200  # interruptions of one variant: of longer calls, evenly spaced lines
WRAPPED = {"flip": True, "smooth_labels": True, "guard": True, "nonfinite": "skip"}
VARIANTS: dict[str, dict[str, Any]] = {
    **{method: {"method": method} for method in METHODS},
    "cotta": {"method": "cotta", "views": 2},
    "realistic, wrapped": {"method": "realistic", **WRAPPED},
    "tent, wrapped": {"method": "tent", **WRAPPED},
    "resting guard": {
        "method": "tbn",
        "guard": GuardSettings(window=4, min_images=2, margin=100, patience=4, rest=64),
    },
}


class Interruption(BaseException):
    """Raised by the tracer."""


def run_until(adapted: ServedModel, batch: Tensor, line: int) -> int:
    """Calls the model, raises at the line of this number, and returns how many lines were run."""
    lines = 0

    def trace(_: FrameType, event: str, __: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if event == "line" and lines == line:
            raise Interruption
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        adapted(batch)
    except Interruption:
        pass
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.filterwarnings("ignore")
def test_a_call_that_is_interrupted_at_any_line_is_whole(variant: str) -> None:
    """State and health are those before the call or after it; model and lock are as before."""
    adapted = adapt(convolutional(), **VARIANTS[variant])
    adapted(images(6, side=6))
    batch = images(4, seed=1, side=6)
    before = snapshot(adapted), adapted.health()
    run_until(adapted, batch, line=-1)  # what torch and Python cache at the first call
    adapted.load_state_dict(before[0])
    before = snapshot(adapted), adapted.health()
    lines = run_until(adapted, batch, line=-1)
    after = snapshot(adapted), adapted.health()
    model = adapted._innermost._model
    with torch.no_grad():
        expected = model(batch)
    assert lines > 300
    for line in range(1, lines + 1, 1 + lines // MOST):
        adapted.load_state_dict(before[0])
        run_until(adapted, batch, line)
        assert is_free(adapted), line
        assert not any(module._forward_pre_hooks for module in model.modules()), line
        with torch.no_grad():
            assert torch.equal(model(batch), expected), line
        found = snapshot(adapted), adapted.health()
        assert any(same(found[0], s) and found[1] == h for s, h in (before, after)), line
    adapted.load_state_dict(before[0])
    adapted(batch)
    assert same(snapshot(adapted), after[0])
