"""process_group=...: real processes, with gloo, against one process with all the images."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from methods.method_state import method_state
from subjects import convolutional, images, on_cpu, randomize, same, snapshot
from torch import Tensor, distributed, nn

from realistic_tta import (
    METHODS,
    AdaptedModel,
    DistributedError,
    InputError,
    OptionError,
    adapt,
    load,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
SHARING = ["tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema", "realistic"]
Work = Callable[[int], Any]


def _rank(rank: int, work: Work, answers: Any, place: str, how: tuple[int, float]) -> None:
    world, seconds = how
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{place}",
        rank=rank,
        world_size=world,
        timeout=dt.timedelta(seconds=seconds),
    )
    try:
        answers.put((rank, work(rank)))
    except BaseException:  # noqa: BLE001 - shown by the test
        answers.put((rank, traceback.format_exc()))
    answers.close()
    answers.join_thread()
    os._exit(0)  # without the group's shutdown, which would wait for a rank that has left


def in_ranks(world: int, work: Work, place: Path, seconds: float = 60) -> list[Any]:
    """The results of the work in each of so many processes of one group."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    ranks = [
        context.Process(target=_rank, args=(rank, work, answers, str(place), (world, seconds)))
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    found = dict(answers.get(timeout=180) for _ in ranks)
    for process in ranks:
        process.join(30)
    for answer in found.values():
        assert not (isinstance(answer, str) and "Traceback" in answer), answer
    return [found[rank] for rank in range(world)]


def shared(model: nn.Module, method: str, **options: Any) -> AdaptedModel:
    return adapt(model, method, process_group=distributed.group.WORLD, **options)


class Twice(nn.Module):
    """Uses its BatchNorm twice in one forward, on inputs of different sizes."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.norm, self.last = nn.BatchNorm2d(3), nn.Linear(3, 4)

    def forward(self, batch: Tensor) -> Tensor:
        once = self.norm(batch)
        again = self.norm(once[:, :, ::2, ::2] + 1)
        outputs: Tensor = self.last(again.mean(dim=(2, 3)))
        return outputs


def vectors() -> nn.Module:
    """One value per image and channel."""
    with on_cpu():
        return randomize(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "convolutional": convolutional,
    "a layer used twice": lambda: randomize(Twice()),
}
SIZES = {"alike": (4, 4, 4), "uneven": (10, 1, 1), "a rank without images": (7, 0, 5)}
BATCHES = [images(12, seed) for seed in range(3)]
CASES = [(model, method, sizes) for model in MODELS for method in SHARING for sizes in SIZES]


def as_lists(state: dict[str, Tensor]) -> dict[str, Any]:
    """A tensor would be sent as shared memory, which ends with its process."""
    return {name: tensor.tolist() for name, tensor in state.items()}


def test_ranks_equal_one_process_with_the_joined_batch(tmp_path: Path) -> None:
    """Predictions and state within 1e-5, and the state bit-identical on all ranks.

    All methods, models and sizes in one group of three processes.
    """

    def work(rank: int) -> Any:
        found = []
        for model, method, sizes in CASES:
            adapted = shared(MODELS[model](), method)
            parts = [batch.split(list(SIZES[sizes]))[rank] for batch in BATCHES]
            outputs = [adapted(part).tolist() for part in parts]
            found.append((outputs, as_lists(method_state(adapted)), adapted.health().images))
        return found

    of_ranks = in_ranks(3, work, tmp_path / "group")
    for case, found in zip(CASES, zip(*of_ranks, strict=True), strict=True):
        model, method, _ = case
        alone = adapt(MODELS[model](), method)
        for number, batch in enumerate(BATCHES):
            rows = [row for outputs, _, _ in found for row in outputs[number]]
            expected = alone(batch)
            assert len(rows) == len(expected), case
            torch.testing.assert_close(torch.tensor(rows), expected, atol=1e-5, rtol=0)
        states = [state for _, state, _ in found]
        assert all(state == states[0] for state in states), case
        for name, tensor in method_state(alone).items():
            kept = torch.tensor(states[0][name], dtype=tensor.dtype).view_as(tensor)
            torch.testing.assert_close(kept, tensor, atol=1e-5, rtol=1e-5)
        assert [images_ for _, _, images_ in found] == [36, 36, 36]


def test_one_value_per_channel_on_each_rank(tmp_path: Path) -> None:
    """Two ranks have a variance together; a single value is refused on both, but by realistic."""
    pair = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.1, 0.9]])

    def work(rank: int) -> Any:
        together = [shared(vectors(), method)(pair[rank : rank + 1]).tolist() for method in SHARING]
        unchanged = []
        for method in SHARING[:-1]:
            adapted = shared(vectors(), method)
            before = snapshot(adapted)
            with pytest.raises(InputError, match=r"1 value per channel together, .* no variance"):
                adapted(torch.ones(rank, 3))
            unchanged.append(same(before, snapshot(adapted)))
        single = shared(vectors(), "realistic")(torch.ones(rank, 3)).tolist()
        return together, unchanged, single

    (first, unchanged, none), (second, also, single) = in_ranks(2, work, tmp_path / "group")
    for method, one, other in zip(SHARING, first, second, strict=True):
        expected = adapt(vectors(), method)(pair)
        torch.testing.assert_close(torch.tensor(one + other), expected, atol=1e-5, rtol=1e-5)
    assert unchanged == also == [True] * 5
    assert none == []
    expected = adapt(vectors(), "realistic")(torch.ones(1, 3))
    torch.testing.assert_close(torch.tensor(single), expected, atol=1e-5, rtol=1e-5)


def test_ranks_that_cannot_adapt_together_change_nothing(tmp_path: Path) -> None:
    """A refused batch, no image at all, and ranks out of step; after each, all can continue."""

    def work(rank: int) -> Any:
        adapted = shared(convolutional(), "tema")
        adapted(images(3, seed=rank))
        before = snapshot(adapted)
        found = []
        refused = images(3) * (float("nan") if rank else 1.0)
        with pytest.raises(
            InputError if rank else DistributedError,
            match="holds NaN" if rank else "rank 1 refused its batch",
        ):
            adapted(refused)
        found.append(same(before, snapshot(adapted)))
        with pytest.raises(InputError, match="no rank has an image"):
            adapted(torch.empty(0, 3, 12, 12))
        found.append(same(before, snapshot(adapted)))
        if rank:
            adapted.reset()
        with pytest.raises(DistributedError, match=r"out of step: they have seen \[1, 0\]"):
            adapted(images(2))
        found.append(rank == 1 or same(before, snapshot(adapted)))
        adapted.load_state_dict(before)
        adapted(images(3, seed=rank))
        return found, adapted.report().batches

    assert in_ranks(2, work, tmp_path / "group") == [([True] * 3, 2)] * 2


def bad_images(rank: int) -> Tensor:
    """Two good ones and one that overflows; one with NaN and nothing else; none; three good."""
    batch = images((3, 1, 0, 3)[rank], seed=rank)
    if rank < 2:
        batch[-1] *= float("nan") if rank else 1e20
    return batch


def test_bad_samples_are_skipped_on_their_own_rank(tmp_path: Path) -> None:
    """The others adapt as one process to all good images."""
    methods = ["tema", "rectified_tema", "realistic"]

    def work(rank: int) -> Any:
        found = []
        for method in methods:
            adapted = shared(convolutional(), method, nonfinite="skip")
            outputs = adapted(bad_images(rank))
            assert outputs.shape == (len(bad_images(rank)), 5)
            inner = {key: t for key, t in adapted.state_dict().items() if "target" in key}
            found.append((outputs.tolist(), as_lists(inner), adapted.health().skipped))
        return found

    of_ranks = in_ranks(4, work, tmp_path / "group")
    for method, found in zip(methods, zip(*of_ranks, strict=True), strict=True):
        rows = [outputs for outputs, _, _ in found]
        alone = adapt(convolutional(), method)
        expected = alone(torch.cat([bad_images(0)[:2], bad_images(3)]))
        good = torch.tensor([*rows[0][:2], *rows[3]])
        torch.testing.assert_close(good, expected, atol=1e-5, rtol=0)
        assert all(state == found[0][1] for _, state, _ in found)
        assert [skipped for _, _, skipped in found] == [1, 1, 0, 0]


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_a_rank_that_leaves_is_an_error_and_changes_nothing(
    in_the_middle: bool, tmp_path: Path
) -> None:
    """Between two batches or within one; the state can be saved, and continues alone."""
    method = "realistic" if in_the_middle else "tema"

    def work(rank: int) -> Any:
        fails = False

        def fail(*_: object) -> None:
            if fails:
                raise ZeroDivisionError

        model = convolutional()
        model.get_submodule("6").register_forward_pre_hook(fail)  # behind two BatchNorms
        adapted = shared(model, method)
        adapted(images(3, seed=rank))
        before = snapshot(adapted)
        if rank:
            if in_the_middle:
                fails = True
                with pytest.raises(ZeroDivisionError):
                    adapted(images(2))
            return same(before, snapshot(adapted))
        with pytest.raises(DistributedError, match="one has left, failed"):
            adapted(images(2))
        adapted.save(tmp_path / "state")
        alone = load(tmp_path / "state", convolutional())
        alone(images(2))
        return same(before, snapshot(adapted)) and alone.report().batches == 2

    assert in_ranks(2, work, tmp_path / "group", seconds=4) == [True, True]


def test_ranks_continue_from_one_file(tmp_path: Path) -> None:
    """A state saved by one process is loaded by all; the file holds no group."""
    first = adapt(convolutional(), "rectified_tema")
    first(images(5))
    first.save(tmp_path / "state")

    def work(rank: int) -> Any:
        world = distributed.group.WORLD
        adapted = load(tmp_path / "state", convolutional(), process_group=world)
        return adapted(images(12).split([4, 8])[rank]).tolist()

    found = torch.tensor([row for rows in in_ranks(2, work, tmp_path / "g") for row in rows])
    torch.testing.assert_close(found, first(images(12)), atol=1e-5, rtol=0)


@pytest.fixture
def group_of_one(tmp_path: Path) -> Iterator[Any]:
    distributed.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        yield distributed.group.WORLD
    finally:
        distributed.destroy_process_group()


def test_other_methods_and_options_are_refused(group_of_one: Any) -> None:
    for method in set(METHODS) - set(SHARING):
        with pytest.raises(OptionError, match=f"{method} does not support process_group"):
            adapt(convolutional(), method, process_group=group_of_one)
    with pytest.raises(OptionError, match="compile=True is not supported with process_group"):
        adapt(convolutional(), "tema", compile=True, process_group=group_of_one)
    with pytest.raises(OptionError, match="guard=True is not supported with process_group"):
        adapt(convolutional(), "tema", guard=True, process_group=group_of_one)
    with pytest.raises(OptionError, match="process_group is 'world'; expected a group"):
        adapt(convolutional(), "tema", process_group="world")


def test_a_group_of_one_is_a_process_alone(group_of_one: Any) -> None:
    for method in SHARING:
        grouped, alone = (
            adapt(convolutional(), method, process_group=group) for group in (group_of_one, None)
        )
        for batch in BATCHES:
            torch.testing.assert_close(grouped(batch), alone(batch), atol=1e-5, rtol=0)


def test_without_an_initialized_group_the_error_says_how_to_make_one() -> None:
    with pytest.raises(OptionError, match="init_process_group"):
        adapt(convolutional(), "tema", process_group="world")
