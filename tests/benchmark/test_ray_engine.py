"""A real cluster of two nodes on this machine: nodes and processes that die, records that stay.

Its processes are heavy, so all tests share one cluster; the one that kills a node comes last.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from bench_subjects import evaluate_tiny, experiment, figures, misbehaves, waits_for_a_word
from ray.cluster_utils import Cluster

from realistic_tta.benchmark.checkpoints import checkpoint_file
from realistic_tta.benchmark.engines import run_local
from realistic_tta.benchmark.environment import versions
from realistic_tta.benchmark.events import Died, Event, Finished, Progress, Started
from realistic_tta.benchmark.ray_engine import check_address, run_ray, work
from realistic_tta.benchmark.results import Results
from realistic_tta.benchmark.runner import make_jobs
from realistic_tta.errors import OptionError

pytestmark = [
    pytest.mark.usefixtures("world"),
    pytest.mark.xdist_group("ray"),  # one process, so one cluster
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore:.*subprocess .* is still running:ResourceWarning"),
]
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of one CPU each; ended with the tests, also if one fails."""
    place = tempfile.mkdtemp(prefix="r")  # short: names of sockets may have 107 letters
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", place)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # 15 if not set: for ever on a busy machine
        patch.setenv("PYTHONPATH", ":".join(sys.path))
        made = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
        try:
            made.add_node(**NODE)
            yield made
        finally:
            ray.shutdown()
            made.shutdown()
            shutil.rmtree(place, ignore_errors=True)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def until_one_is_gone(marks: list[Path]) -> None:
    """Of the processes that wrote their numbers there."""
    until(lambda: not all((Path("/proc") / mark.read_text()).exists() for mark in marks))


def of(kind: type[Event], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_what_fails_or_kills_its_process_is_recorded(cluster: Cluster, tmp_path: Path) -> None:
    """An error of the method is final at once, a death after the third; each says where."""
    jobs = make_jobs([experiment(name, images=2) for name in ("tbn", "source")], tmp_path)
    events = list(run_ray(jobs, tmp_path, cluster.address, evaluate=misbehaves))
    assert [event.job for event in of(Died, events)] == 2 * [jobs[1]]
    messages = {each.method: str(each.message) for each in Results(tmp_path).read(status="failed")}
    node = socket.gethostname()
    assert messages["tbn"] == f"RuntimeError: tbn is not well today (on node {node})"
    assert "ended 3 times unexpectedly, last with WorkerCrashedError: " in messages["source"]


def test_closing_the_events_ends_what_runs(cluster: Cluster, tmp_path: Path) -> None:
    (job,) = make_jobs([experiment()], tmp_path)
    events = run_ray([job], tmp_path, cluster.address, evaluate=waits_for_a_word)
    assert next(events) == Started(job)
    mark = tmp_path / f"process-{job.key}"
    until(lambda: mark.exists() and mark.read_text() != "")
    process = Path("/proc") / mark.read_text()
    assert process.exists()
    events.close()  # type: ignore[attr-defined]
    until(lambda: not process.exists())
    assert not ray.is_initialized()
    assert not Results(tmp_path).read()


def test_a_node_that_is_killed_has_its_experiments_run_on_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each node is in the middle of an experiment when one of them is gone from one moment on."""
    methods = ("source", "tbn", "tema", "rectified_tema")
    jobs = make_jobs([experiment(name) for name in methods], tmp_path)
    events: list[Event] = []
    waiting = run_ray(jobs, tmp_path, cluster.address, save_every=0, evaluate=waits_for_a_word)
    for event in waiting:
        events.append(event)
        running = {each.job.key for each in of(Progress, events)}
        if len(running) == 2 and not (tmp_path / "go").exists():
            marks = [tmp_path / f"process-{key}" for key in running]
            for key in running:
                until(checkpoint_file(key, tmp_path).exists)
            (victim,) = cluster.worker_nodes
            cluster.remove_node(victim, allow_graceful=False)
            until_one_is_gone(marks)  # it could come to its end before that
            (tmp_path / "go").touch()
    (died,) = of(Died, events)
    assert "Node" in died.reason
    assert {event.job for event in of(Finished, events)} == set(jobs)
    records = {record.key: record for record in Results(tmp_path).read(status="done")}
    assert {key for key, record in records.items() if record.resumed} == {died.job.key}
    list(run_local(jobs, tmp_path / "local", 1, evaluate=evaluate_tiny))
    for record in Results(tmp_path / "local").read(status="done"):
        assert figures(records[record.key]) == figures(record)
    assert len(records) == len(jobs)
    assert not list((tmp_path / "checkpoints").glob("*.pt"))  # what was half written may be there
    assert list(run_ray(jobs, tmp_path, "nowhere:1")) == [], "finished experiments ran again"


def test_a_node_with_another_version_says_so(tmp_path: Path) -> None:
    (job,) = make_jobs([experiment(images=2)], tmp_path)
    started, finished = work(job, "0.0.7", tmp_path, 1.0, evaluate_tiny)
    assert started == Started(job)
    assert isinstance(finished, Finished)
    assert finished.record.status == "failed"
    told = f"realistic-tta is {versions()['package']} on node {socket.gethostname()} and 0.0.7"
    assert told in str(finished.record.message)


def test_a_node_without_the_data_says_what_is_missing_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: Path
) -> None:
    (job,) = make_jobs([experiment(images=2)], tmp_path)
    package = str(versions()["package"])
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "models").symlink_to(world / "models")
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "node"))
    *_, finished = work(job, package, tmp_path, 1.0, evaluate_tiny)
    assert isinstance(finished, Finished)
    message = str(finished.record.message)
    assert message.startswith(f"DataError: {tmp_path / 'node' / 'cifar10-c'}")
    assert message.endswith(f"(on node {socket.gethostname()})")


@pytest.mark.parametrize("address", ["", "6379", "ray://10.0.0.1:10001", "10.0.0.1", "host:port"])
def test_what_is_no_address_is_answered_with_one(address: str) -> None:
    with pytest.raises(OptionError, match="expected HOST:PORT of the head node"):
        check_address(address)


def test_an_address_without_a_cluster_is_told_at_once(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jobs, begin = make_jobs([experiment(images=2)], tmp_path), time.monotonic()
    with pytest.raises(OptionError, match=f'no Ray cluster answers at "127.0.0.1:{port}"'):
        list(run_ray(jobs, tmp_path, f"127.0.0.1:{port}"))
    assert time.monotonic() - begin < 10
