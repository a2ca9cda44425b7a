"""sync="torch.distributed": real processes, with gloo, against one process with all the images."""

from __future__ import annotations

import datetime as dt
import math
import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from subjects import convolutional, images, on_cpu, same, snapshot
from torch import Tensor, distributed, nn

from realistic_tta import METHODS, DistributedError, InputError, SettingError, adapt, load
from realistic_tta.errors import NonFiniteError
from realistic_tta.layers.replicas import merge

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
METHODS_THAT_SYNC = ["tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema", "realistic"]
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
    os._exit(0)  # without the group's farewell, for which a rank that has left would be missed


def in_ranks(world: int, work: Work, place: Path, seconds: float = 60) -> list[Any]:
    """What the work returns in each of so many processes of one group."""
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


Answer = tuple[list[Tensor], dict[str, Tensor]]


def listed(answer: Answer) -> Any:
    """As plain lists: tensors would be sent as shared memory, which leaves with its process."""
    outputs, state = answer
    return [o.tolist() for o in outputs], {name: tensor.tolist() for name, tensor in state.items()}


def batches() -> list[Tensor]:
    return [images(12, seed) for seed in range(3)]


def cut(batch: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    return list(torch.split(batch, list(sizes)))


def equals_one_process(found: list[Any], outputs: list[Tensor], state: dict[str, Tensor]) -> None:
    """The ranks' rows are the outputs; their states are the same, and this one within 1e-5."""
    for number, expected in enumerate(outputs):
        rows = [row for of_rank, _ in found for row in of_rank[number]]
        torch.testing.assert_close(torch.tensor(rows), expected, atol=1e-5, rtol=0)
    states = [state for _, state in found]
    assert all(other == states[0] for other in states)
    for name, expected in state.items():
        kept = torch.tensor(states[0][name], dtype=expected.dtype).view_as(expected)
        torch.testing.assert_close(kept, expected, atol=1e-5, rtol=1e-5)


SIZES = {"two alike": (6, 6), "two that differ": (11, 1), "an empty one": (7, 0, 5)}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("method", METHODS_THAT_SYNC)
def test_ranks_equal_one_process_with_all_images(
    method: str, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    """Predictions and statistics within 1e-5; and every rank has the same state, to the bit."""

    def work(rank: int) -> Any:
        adapted = adapt(convolutional(), method, sync="torch.distributed")
        outputs = [adapted(cut(batch, sizes)[rank]) for batch in batches()]
        return listed((outputs, snapshot(adapted)))

    alone = adapt(convolutional(), method)
    expected = [alone(batch) for batch in batches()]
    equals_one_process(in_ranks(len(sizes), work, tmp_path / "group"), expected, snapshot(alone))


def of_vectors() -> nn.Module:
    with on_cpu():
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()


@pytest.mark.parametrize("method", ["tema", "realistic"])
def test_one_value_a_channel_on_each_rank_is_enough(method: str, tmp_path: Path) -> None:
    """A single image of one pixel has no variance; those of two ranks together have one."""
    pair = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.1, 0.9]])

    def work(rank: int) -> Any:
        adapted = adapt(of_vectors(), method, sync="torch.distributed")
        return adapted(pair[rank : rank + 1]).tolist()

    found = torch.tensor(in_ranks(2, work, tmp_path / "group"))
    torch.testing.assert_close(found.flatten(0, 1), adapt(of_vectors(), method)(pair))


def test_realistic_takes_one_value_a_channel_in_all(tmp_path: Path) -> None:
    """As one process does, for which it has a distance from the source's mean."""
    expected = adapt(of_vectors())(torch.ones(1, 3))

    def work(rank: int) -> Any:
        return adapt(of_vectors(), sync="torch.distributed")(torch.ones(rank, 3)).tolist()

    none, found = in_ranks(2, work, tmp_path / "group")
    assert none == []
    torch.testing.assert_close(torch.tensor(found), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", ["tbn", "tema"])
def test_one_value_a_channel_in_all_is_refused_on_all(method: str, tmp_path: Path) -> None:
    """As one process refuses it."""
    with pytest.raises(InputError, match="no variance"):
        adapt(of_vectors(), method)(torch.ones(1, 3))

    def work(rank: int) -> Any:
        adapted = adapt(of_vectors(), method, sync="torch.distributed")
        before = snapshot(adapted)
        with pytest.raises(InputError, match="1 value a channel together, which has no variance"):
            adapted(torch.ones(rank, 3))
        return same(before, snapshot(adapted))

    assert in_ranks(2, work, tmp_path / "group") == [True, True]


WITHOUT = {
    "total variance": {"total_variance": False},
    "warm start": {"warm_start": False},
    "several memories, the source and changes": {
        "several_memories": False,
        "lean_on_source": False,
        "changes": False,
    },
    "changes": {"changes": False},
    "label runs": {"label_runs": False},
    "trust in every image": {"robust": True},
}


@pytest.mark.parametrize("settings", WITHOUT.values(), ids=WITHOUT)
def test_ranks_equal_one_process_without_a_piece_of_realistic(
    settings: dict[str, bool], tmp_path: Path
) -> None:
    """One image of 12 is far outside, so that trust matters."""
    shown = batches()
    shown[1][3] *= 40

    def work(rank: int) -> Any:
        adapted = adapt(convolutional(), "realistic", sync="torch.distributed", **settings)  # type: ignore[arg-type]
        outputs = [adapted(cut(batch, (3, 9))[rank]) for batch in shown]
        return listed((outputs, snapshot(adapted)))

    alone = adapt(convolutional(), "realistic", **settings)  # type: ignore[arg-type]
    expected = [alone(batch) for batch in shown]
    equals_one_process(in_ranks(2, work, tmp_path / "group"), expected, snapshot(alone))


class Brightest(nn.Module):
    """Says which channel is the brightest, in float16 logits; deep inside, a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        with on_cpu():
            self.norm, self.last = nn.BatchNorm2d(3), nn.Linear(3, 3)

    def forward(self, batch: Tensor) -> dict[str, Tensor]:
        values = self.last(self.norm(batch).mean(dim=(2, 3)))
        return {"map": batch, "logits": (0 * values + batch.mean(dim=(2, 3))).half()}


def test_images_of_a_run_answer_each_other_across_ranks(tmp_path: Path) -> None:
    """Ranks with 3, 0 and 9 images of every batch of 12, in runs of 24."""
    shown = [images(12, seed) / 10 for seed in range(6)]
    for place, batch in enumerate(shown):
        batch[:, place // 2] += 1

    def work(rank: int) -> Any:
        adapted = adapt(Brightest(), "realistic", sync="torch.distributed")
        outputs = [adapted(cut(batch, (3, 0, 9))[rank])["logits"].float() for batch in shown]
        return listed((outputs, snapshot(adapted)))

    alone = adapt(Brightest(), "realistic")
    expected = [alone(batch)["logits"].float() for batch in shown]
    own = shown[-1].mean(dim=(2, 3))
    assert (expected[-1] - own).abs().max() > 1  # a run is seen
    equals_one_process(in_ranks(3, work, tmp_path / "group"), expected, snapshot(alone))


def test_realistic_without_logits_is_shared_all_the_same(tmp_path: Path) -> None:
    """Nothing is learnt of labels, and nobody waits for predictions."""

    def work(rank: int) -> Any:
        adapted = adapt(convolutional()[:9], "realistic", classes=5, sync="torch.distributed")  # type: ignore[index]
        adapted(images(3 * rank))
        return listed(([], snapshot(adapted)))

    (_, one), (_, other) = in_ranks(2, work, tmp_path / "group")
    assert one == other
    assert one["order_usual"] == pytest.approx([0.2] * 5)
    assert one["step"] == 1


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


@pytest.mark.parametrize("method", ["tema", "realistic"])
def test_a_layer_used_twice_is_pooled_over_uses_and_ranks(method: str, tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        adapted = adapt(Twice(), method, sync="torch.distributed")
        outputs = [adapted(cut(batch, (9, 0, 3))[rank]) for batch in batches()]
        return listed((outputs, snapshot(adapted)))

    alone = adapt(Twice(), method)
    expected = [alone(batch) for batch in batches()]
    equals_one_process(in_ranks(3, work, tmp_path / "group"), expected, snapshot(alone))


def test_a_rank_that_refuses_its_batch_stops_all_and_all_go_on(tmp_path: Path) -> None:
    """The others need not wait for the timeout; nothing is changed anywhere."""

    def work(rank: int) -> Any:
        adapted = adapt(convolutional(), "tema", sync="torch.distributed", on_bad_input="raise")
        adapted(images(3, seed=rank))
        before, bad = snapshot(adapted), images(3) * (float("nan") if rank else 1.0)
        with pytest.raises(
            InputError if rank else DistributedError, match="NaN" if rank else "rank 1"
        ):
            adapted(bad)
        unchanged = same(before, snapshot(adapted))
        adapted(images(3, seed=rank))
        return unchanged, int(adapted.step)

    assert in_ranks(2, work, tmp_path / "group") == [(True, 2)] * 2


@pytest.mark.parametrize("method", ["tema", "realistic"])
def test_a_rank_with_faulty_samples_comes_with_the_rest(method: str, tmp_path: Path) -> None:
    """Three images, of which one is faulty: as two; all faulty: as an empty rank."""

    def work(rank: int) -> Any:
        adapted = adapt(convolutional(), method, sync="torch.distributed")
        for faulty in ([1], [0, 1, 2]):
            batch = images(3, seed=rank)
            batch[faulty if rank else []] = float("nan")
            outputs = adapted(batch)
        return listed((outputs, snapshot(adapted))), adapted.health().excluded

    (first, none), (second, four) = in_ranks(2, work, tmp_path / "group")
    assert (none, four) == (0, 4)
    assert first[1] == second[1]
    once: dict[str, Any] = {"mirror": 0} if method == "realistic" else {}  # as several processes
    alone = adapt(convolutional(), method, **once)
    alone(torch.cat([images(3, seed=0), images(3, seed=1)[[0, 2]]]))
    expected = alone(images(3, seed=0))
    torch.testing.assert_close(torch.tensor(first[0]), expected, atol=1e-5, rtol=0)


def shown_to(rank: int) -> Tensor:
    """Two good ones and one that overflows; one good and one with NaN; none; three good ones."""
    batch = images((3, 2, 0, 3)[rank], seed=rank)
    if rank < 2:
        batch[1] *= math.nan if rank else 1e20
    return batch


@pytest.mark.parametrize("method", ["tema", "rectified_tema", "realistic"])
def test_samples_that_overflow_are_left_out_on_every_rank(method: str, tmp_path: Path) -> None:
    """Ranks that have none, and one that has no image at all, try once more with the others."""

    def work(rank: int) -> Any:
        adapted = adapt(convolutional(), method, sync="torch.distributed")
        outputs = adapted(shown_to(rank))
        good = outputs[[0, 2]] if rank == 0 else outputs[:1] if rank == 1 else outputs
        return listed(([good], snapshot(adapted))), adapted.health().excluded

    found = in_ranks(4, work, tmp_path / "group")
    assert [excluded for _, excluded in found] == [1, 1, 0, 0]
    alone = adapt(convolutional(), method)
    expected = alone(torch.cat([shown_to(0)[[0, 2]], shown_to(1)[:1], shown_to(3)]))
    equals_one_process([answer for answer, _ in found], [expected], snapshot(alone))


def test_an_overflow_that_no_sample_explains_is_raised_on_every_rank(tmp_path: Path) -> None:
    """The state is at fault: the network as trained can take all images. All may go on after it."""

    def work(rank: int) -> Any:
        adapted = adapt(convolutional(), "tema", sync="torch.distributed")
        adapted.get_buffer("target_mean").fill_(-3e38)
        before = snapshot(adapted)
        with pytest.raises(NonFiniteError, match="overflow inside the network"):
            adapted(images(3 * rank))
        unchanged = same(before, snapshot(adapted))
        adapted.reset()
        adapted(images(3 * rank))
        return unchanged, adapted.health().excluded

    assert in_ranks(2, work, tmp_path / "group") == [(True, 0)] * 2


def test_all_ranks_empty_is_refused_on_all(tmp_path: Path) -> None:
    def work(_: int) -> Any:
        adapted = adapt(convolutional(), "tema", sync="torch.distributed")
        before = snapshot(adapted)
        with pytest.raises(InputError, match="no rank has an image"):
            adapted(torch.empty(0, 3, 12, 12))
        return same(before, snapshot(adapted))

    assert in_ranks(2, work, tmp_path / "group") == [True, True]


def test_ranks_out_of_step_are_told(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        adapted = adapt(convolutional(), "tema", sync="torch.distributed")
        adapted.step.fill_(rank)
        with pytest.raises(DistributedError, match=r"out of step.*\[0, 1\]"):
            adapted(images(2))
        return int(adapted.step)

    assert in_ranks(2, work, tmp_path / "group") == [0, 1]


@pytest.mark.parametrize("method", ["tema", "realistic"])
@pytest.mark.parametrize("layers_before_leaving", [0, 2])
def test_a_rank_that_leaves_is_an_error_and_changes_nothing(
    layers_before_leaving: int, method: str, tmp_path: Path
) -> None:
    """Between two batches or in the middle of one; the state can be saved, and goes on alone."""

    def work(rank: int) -> Any:
        adapted = adapt(convolutional(), method, sync="torch.distributed")
        adapted(images(3, seed=rank))
        if rank:
            if layers_before_leaving:
                # the layer behind so many BatchNorms fails on this rank alone
                adapted.network.get_submodule("6").register_forward_pre_hook(lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    adapted(images(2))
            return True
        before = snapshot(adapted)
        with pytest.raises(DistributedError, match="one has left, failed"):
            adapted(images(2))
        adapted.save(tmp_path / "state")
        alone = load(tmp_path / "state", convolutional())
        alone(images(2))
        return same(before, snapshot(adapted)) and int(alone.step) == 2

    assert in_ranks(2, work, tmp_path / "group", seconds=4) == [True, True]


def test_ranks_go_on_from_one_file(tmp_path: Path) -> None:
    """A state saved by one process is loaded by all; the file knows nothing of ranks."""
    first = adapt(convolutional(), "rectified_tema")
    first(images(5))
    first.save(tmp_path / "state")

    def work(rank: int) -> Any:
        adapted = load(tmp_path / "state", convolutional(), sync="torch.distributed")
        return adapted(cut(images(12), (4, 8))[rank]).tolist()

    found = torch.tensor([row for rows in in_ranks(2, work, tmp_path / "g") for row in rows])
    torch.testing.assert_close(found, first(images(12)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in METHODS_THAT_SYNC])
def test_other_methods_refuse(method: str, tmp_path: Path) -> None:
    distributed.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        with pytest.raises(SettingError, match=f"{method} cannot be shared"):
            adapt(convolutional(), method, sync="torch.distributed")
    finally:
        distributed.destroy_process_group()


def test_without_a_group_or_with_another_word_it_is_told() -> None:
    with pytest.raises(SettingError, match="init_process_group"):
        adapt(convolutional(), "tema", sync="torch.distributed")
    with pytest.raises(SettingError, match="expected"):
        adapt(convolutional(), "tema", sync="horovod")  # type: ignore[arg-type]


@pytest.mark.parametrize("correction", [0, 1])
def test_merged_statistics_are_those_of_all_values(correction: int) -> None:
    """Far from zero, in uneven parts, one of them empty: as NumPy over everything."""
    values = np.random.default_rng(0).normal(1000, 3, (23, 4))
    parts = np.split(values, [4, 4, 22])
    counts = torch.tensor([[len(part)] for part in parts], dtype=torch.float64)
    means = [part.mean(axis=0) if len(part) else np.zeros(4) for part in parts]
    squares = [((part - mean) ** 2).sum(axis=0) for part, mean in zip(parts, means, strict=True)]
    found = merge(
        counts, torch.tensor(np.array(means)), torch.tensor(np.array(squares)), correction
    )
    np.testing.assert_allclose(found.mean, values.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, values.var(axis=0, ddof=correction), rtol=1e-12)
