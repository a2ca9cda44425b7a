"""Threads, forked and spawned processes, loader workers; health and hooks."""

from __future__ import annotations

import copy
import logging
import math
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import convolutional, images, residual, same, snapshot, stream
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

from realistic_tta import METHODS, Health, OptionError, ServedModel, adapt
from realistic_tta.serving.served_model import RECENT


def in_threads(works: list[Callable[[], None]]) -> None:
    """Runs all at once; raises what any of them raised."""
    errors: list[BaseException] = []
    ready = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        try:
            ready.wait()
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def repeat(adapted: ServedModel, batch: Tensor, times: int) -> None:
    for _ in range(times):
        adapted(batch)


class Slow(nn.Module):
    """Gives other threads every chance, in the middle of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()

    def forward(self, batch: Tensor) -> Tensor:
        time.sleep(0.001)
        outputs: Tensor = self.body(batch)
        time.sleep(0.001)
        return outputs


@pytest.mark.parametrize("method", ["tema", "rectified_tema", "tent", "sar", "adacontrast"])
def test_calls_from_many_threads_have_some_serial_order(method: str) -> None:
    """Identical batches: whatever the order, the outputs are those of one thread, each once."""
    adapted, alone = (adapt(Slow(), method, nonfinite="skip") for _ in range(2))
    batch, found = images(3), list[Tensor]()
    in_threads([lambda: found.extend([adapted(batch), adapted(batch)]) for _ in range(6)])
    expected = [alone(batch) for _ in range(12)]
    assert same(snapshot(adapted), snapshot(alone))
    for output in expected:
        found.pop(next(i for i, each in enumerate(found) if torch.equal(each, output)))
    assert not found
    assert (adapted.health().batches, adapted.health().images) == (12, 36)


def test_different_batches_end_in_the_state_of_one_of_the_orders() -> None:
    adapted, batches = adapt(Slow(), "tema", momentum=0.3), stream([2, 3, 4])
    in_threads([lambda batch=batch: adapted(batch) for batch in batches])  # type: ignore[misc]
    ends = []
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        alone = adapt(Slow(), "tema", momentum=0.3)
        for place in order:
            alone(batches[place])
        ends.append(snapshot(alone))
    assert sum(same(snapshot(adapted), end) for end in ends) == 1


def test_everything_else_waits_for_the_batch_to_end(tmp_path: Path) -> None:
    """While others predict, a reset, a file, a report and a copy are of whole batches."""
    adapted, other = adapt(Slow(), "tent"), adapt(Slow(), "tent")
    batch, fresh = images(3), snapshot(adapted._innermost)
    other(batch)
    after_one = snapshot(other)

    def others() -> None:
        for _ in range(5):
            adapted.reset()
            adapted.load_state_dict(after_one)
            adapted.save(tmp_path / "state")
            adapted.freeze()
            adapted.report()
            adapted.health()
            copy.deepcopy(adapted)(batch)
            adapted.to(torch.float32)

    in_threads([others, lambda: repeat(adapted, batch, 20)])
    adapted.reset()
    assert same(fresh, snapshot(adapted._innermost))


def test_without_the_lock_threads_would_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above can fail."""
    monkeypatch.setattr(ServedModel, "__call__", nn.Module.__call__)
    adapted, alone, batch = adapt(Slow(), "tema"), adapt(Slow(), "tema"), images(3)
    for _ in range(12):
        alone(batch)
    try:
        in_threads([lambda: repeat(adapted, batch, 2) for _ in range(6)])
    except Exception:  # noqa: BLE001 - one way to collide
        return
    assert not same(snapshot(adapted), snapshot(alone))


def test_copies_have_a_lock_of_their_own() -> None:
    adapted = adapt(convolutional(), "tema")
    adapted(images(2))
    with adapted._lock.lock:  # a copy that shared it would wait forever in another thread
        copies = [copy.deepcopy(adapted), pickle.loads(pickle.dumps(adapted))]  # noqa: S301 - ours
        in_threads([lambda each=each: each(images(2)) for each in copies])  # type: ignore[misc]
    assert all(each.report().batches == 2 for each in copies)


def test_a_copy_neither_saves_nor_calls_hooks(tmp_path: Path) -> None:
    adapted, told = adapt(convolutional(), "tema"), list[Health]()
    adapted.autosave(tmp_path / "state", every_batches=1)
    adapted.register_health_hook(told.append)
    (tmp_path / "state").unlink()
    for other in (copy.deepcopy(adapted), pickle.loads(pickle.dumps(adapted))):  # noqa: S301 - ours
        other(images(2))
    assert not told
    assert not (tmp_path / "state").exists()


def in_child(work: Callable[[], bool]) -> bool:
    """The result of the work in a forked child; False if it hangs."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = work()
        finally:
            os._exit(0 if done else 1)
    for _ in range(600):
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_other_threads_predict_finds_whole_batches() -> None:
    """The child's lock is free, and its state that of a whole number of batches."""
    adapted, alone, batch = adapt(Slow(), "tema"), adapt(Slow(), "tema"), images(3)
    ends = [snapshot(alone)]
    for _ in range(60):
        alone(batch)
        ends.append(snapshot(alone))

    def predicts() -> bool:
        state, batches = snapshot(adapted), adapted.report().batches
        whole = same(state, ends[batches])
        adapted(batch)
        return whole and adapted.report().batches == batches + 1

    thread = threading.Thread(target=repeat, args=(adapted, batch, 60))
    thread.start()
    results = [in_child(predicts) for _ in range(4)]
    thread.join()
    assert all(results)
    assert same(snapshot(adapted), ends[60])  # the children changed only themselves


def predict_and_report(adapted: ServedModel, answers: Any) -> None:
    torch.set_num_threads(1)
    logits = adapted(images(3, seed=5))
    answers.put((logits.tolist(), adapted.report().batches))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_another_process_continues_on_its_own(way: str) -> None:
    """It starts from this state, and its adaptation stays there."""
    adapted = adapt(convolutional(), "tent")
    adapted(images(4))
    before = snapshot(adapted)
    context: Any = multiprocessing.get_context(way)
    answers = context.Queue()
    process = context.Process(target=predict_and_report, args=(adapted, answers))
    process.start()
    logits, batches = answers.get(timeout=120)
    process.join(60)
    assert process.exitcode == 0
    assert batches == 2
    assert same(before, snapshot(adapted))
    assert torch.equal(torch.tensor(logits), adapted(images(3, seed=5)))


class Adapting(Dataset[Tensor]):
    """Predicts in the loader's workers: each has a copy of its own."""

    def __init__(self, adapted: ServedModel) -> None:
        self.adapted = adapted

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> Tensor:
        self.adapted(images(2, seed=place))
        return torch.tensor(self.adapted.report().batches)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_of_a_loader_adapt_copies_of_their_own() -> None:
    adapted = adapt(convolutional(), "tema")
    loader = DataLoader(Adapting(adapted), batch_size=None, num_workers=2)
    assert [int(batches) for batches in loader] == [1, 1, 2, 2]
    assert adapted.report().batches == 0


def by_hand(logits: Tensor) -> tuple[float, list[int]]:
    """Mean entropy in nats and class histogram, one image after another."""
    total, counts = 0.0, [0] * logits.shape[1]
    for row in logits.double().tolist():
        weights = [math.exp(value) for value in row]
        probabilities = [weight / sum(weights) for weight in weights]
        total -= sum(p * math.log(p) for p in probabilities)
        counts[row.index(max(row))] += 1
    return total / len(logits), counts


@pytest.mark.parametrize("method", METHODS)
def test_health_agrees_with_a_plain_count(method: str) -> None:
    adapted = adapt(convolutional(), method)
    assert adapted.health().entropy is None
    logits = torch.cat([adapted(batch) for batch in stream([5, 1, 16])])
    health, (entropy, histogram) = adapted.health(), by_hand(logits)
    assert (health.method, health.batches, health.images) == (method, 3, 22)
    assert (health.recent, health.skipped, health.resets) == (22, 0, 0)
    assert health.entropy == pytest.approx(entropy, rel=1e-5)
    assert list(health.histogram) == histogram
    assert health.layers == adapted.report().layers
    adapted.reset()
    health = adapted.health()
    assert (health.batches, health.resets, health.recent) == (3, 1, 0)
    assert health.entropy is None
    assert sum(health.histogram) == 0


def test_only_the_last_predictions_are_recent() -> None:
    adapted = adapt(convolutional(), "tema")
    logits = torch.cat([adapted(batch) for batch in stream([300, 200, 100, 7], side=6)])
    entropy, histogram = by_hand(logits[-RECENT:])
    assert adapted.health().recent == RECENT
    assert adapted.health().entropy == pytest.approx(entropy, rel=1e-5)
    assert list(adapted.health().histogram) == histogram
    logits = adapted(images(RECENT + 88, side=6))
    assert list(adapted.health().histogram) == by_hand(logits[-RECENT:])[1]


def test_a_batch_that_is_refused_is_not_counted() -> None:
    adapted = adapt(convolutional(), "tema")
    with pytest.raises(ValueError, match="NaN"):
        adapted(images(2) * math.nan)
    assert adapted.health().batches == 0


def test_an_output_without_logits_has_no_entropy() -> None:
    with torch.device("cpu"):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    adapted = adapt(model, "tbn")
    adapted(images(2))
    health = adapted.health()
    assert (health.images, health.recent, health.entropy, health.histogram) == (2, 0, None, ())


def test_hooks_are_called_every_so_many_batches_until_they_are_removed() -> None:
    adapted, told = adapt(convolutional(), "tema"), list[int]()
    handle = adapted.register_health_hook(lambda health: told.append(health.batches), every=2)
    for batch in stream([2] * 5):
        adapted(batch)
    handle.remove()
    adapted(images(2))
    assert told == [2, 4]
    for every in (0, True, 1.5):
        with pytest.raises(OptionError, match=f"every is {every}; expected a whole number"):
            adapted.register_health_hook(print, every=every)  # type: ignore[arg-type]


def test_a_hook_that_fails_is_logged_and_costs_no_prediction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapted, told = adapt(convolutional(), "tema"), list[Health]()
    expected = adapt(convolutional(), "tema")(images(2))

    def fail(_: Health) -> None:
        raise LookupError

    adapted.register_health_hook(fail)
    adapted.register_health_hook(told.append)
    with caplog.at_level(logging.ERROR, logger="realistic_tta"):
        assert torch.equal(adapted(images(2)), expected)
    assert "LookupError" in caplog.text
    assert len(told) == 1


def test_a_hook_may_use_the_model() -> None:
    adapted = adapt(convolutional(), "tema")

    def reset_once(_: Health) -> None:
        adapted.reset()
        handle.remove()

    handle = adapted.register_health_hook(reset_once)
    adapted(images(2))
    assert adapted.report().batches == 0
    adapted(images(2))
    assert adapted.report().batches == 1


class Operations(TorchDispatchMode):
    """Counts the operations of torch."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_serving_costs_a_handful_of_operations_per_batch() -> None:
    adapted, batch = adapt(residual(), "tema"), images(1, side=32)
    adapted(batch)
    with Operations() as alone:
        adapted._innermost.forward(batch)
    with Operations() as served:
        adapted(batch)
    assert served.count - alone.count <= 8
