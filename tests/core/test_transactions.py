"""A call that is interrupted, at any moment, happened wholly or not at all."""

from __future__ import annotations

import copy
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
import torch
from subjects import convolutional, images, is_free, same, snapshot
from torch import Tensor

from realistic_tta import GuardSettings, Health, ServedModel, adapt

State = tuple[dict[str, Tensor], Health]


class Alarm(BaseException):
    """Raised by the signal handler."""


@contextmanager
def alarm_after(seconds: float) -> Iterator[None]:
    """Interrupts the block once, after this time; nothing is raised outside it."""
    armed = True

    def handle(_: int, __: FrameType | None) -> None:
        if armed:
            raise Alarm

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def state_of(adapted: ServedModel) -> State:
    return snapshot(adapted), adapted.health()


def equal(first: State, second: State) -> bool:
    return same(first[0], second[0]) and first[1] == second[1]


WRAPPED = {"guard": GuardSettings(window=8, min_images=4), "flip": True, "smooth_labels": True}


@pytest.mark.parametrize("method", ["realistic", "tent"])
def test_a_signal_at_any_moment_leaves_a_whole_number_of_calls(method: str) -> None:
    """State and health are from before the call or after it, and nothing stays in the model."""
    batch, source_of = images(4, side=6), convolutional()
    adapted = adapt(convolutional(), method, **WRAPPED)  # type: ignore[arg-type]
    adapted(images(6, side=6))
    start = time.perf_counter()
    copy.deepcopy(adapted)(batch)
    duration = time.perf_counter() - start
    before = state_of(adapted)
    adapted(batch)
    after = state_of(adapted)
    with torch.no_grad():
        source = source_of(batch)
    draw, outcomes = random.Random(0), {"before": 0, "after": 0}  # noqa: S311 - no secret
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline and min(outcomes.values()) < 150:
        adapted.load_state_dict(before[0])
        try:
            with alarm_after(draw.random() * duration * 1.3 + 1e-6):
                adapted(batch)
                time.sleep(duration)  # an alarm that came late still falls into the block
        except Alarm:
            pass
        assert is_free(adapted)
        with torch.no_grad():
            assert torch.equal(adapted._innermost._model(batch), source)
        found = state_of(adapted)
        outcome = next(
            (name for name, each in (("before", before), ("after", after)) if equal(found, each)),
            "neither",
        )
        assert outcome in outcomes
        outcomes[outcome] += 1
    assert min(outcomes.values()) > 10  # alarms came in both halves
    adapted.load_state_dict(before[0])
    adapted(batch)
    assert equal(state_of(adapted), after)


def test_a_commit_of_several_levels_cannot_be_interrupted_between_them() -> None:
    """Signals arrive as fast as they can while states of five levels are exchanged."""
    adapted = adapt(
        convolutional(), "tbn", flip=True, smooth_labels=True, guard=True, nonfinite="skip"
    )
    seen: list[tuple[int, int]] = []

    def handle(_: int, __: FrameType | None) -> None:
        served = int(adapted._state()["counters"][0])
        seen.append((served, int(adapted._innermost._batches)))

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        for seed in range(60):
            adapted(images(2, seed, side=6))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) > 100
    assert all(served == inner for served, inner in seen)


def test_a_hook_that_is_interrupted_does_not_undo_the_batch() -> None:
    adapted = adapt(convolutional(), "tema")

    def interrupt(_: Health) -> None:
        raise KeyboardInterrupt

    handle = adapted.register_health_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        adapted(images(2))
    handle.remove()
    assert adapted.health().batches == 1
    assert is_free(adapted)
