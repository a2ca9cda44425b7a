"""Health for Prometheus and TensorBoard, read back by an independent reader."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from subjects import convolutional, images, stream

from realistic_tta import Health, LayerReport, OptionError, adapt
from realistic_tta.serving import tensorboard
from realistic_tta.serving.prometheus import prometheus_text
from realistic_tta.serving.tensorboard import TensorBoard, scalars

# The grammar of the text format 0.0.4, from its description.
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf"({NAME})\{{({LABEL}(?:,{LABEL})*)\}} (\S+)")
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}

Page = dict[str, dict[tuple[tuple[str, str], ...], float]]


def parse(text: str) -> Page:
    """A strict reader: every line must be what the format allows, each metric in one piece."""
    assert text.endswith("\n")
    found: Page = {}
    current, metric_type = "", ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert re.fullmatch(NAME, current)
            assert current not in found
            found[current], metric_type = {}, ""
        elif line.startswith("# TYPE "):
            _, _, name, metric_type = line.split(" ")
            assert name == current
            assert metric_type in TYPES
            assert not found[name]
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == current
            assert metric_type
            labels = tuple((name, unescape(value)) for name, value in re.findall(LABEL, match[2]))
            assert labels not in found[current]
            assert metric_type != "counter" or current.endswith("_total")
            found[current][labels] = float(match[match.re.groups])
    return found


def unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), text)


def health_of(method: str = "rectified_tema") -> Health:
    adapted = adapt(convolutional(), method)
    for batch in stream([5, 3]):
        adapted(batch)
    return adapted.health()


@pytest.mark.parametrize("method", ["source", "tema", "rectified_tema", "tent"])
def test_prometheus_reads_every_figure_of_health(method: str) -> None:
    health = health_of(method)
    page = parse(prometheus_text(health))
    own = ("method", method)
    assert page["rtta_batches_total"] == {(own,): 2}
    assert page["rtta_images_total"] == {(own,): 8}
    assert page["rtta_skipped_total"] == {(own,): 0}
    assert page["rtta_resets_total"] == {(own,): 0}
    assert page["rtta_entropy_nats"] == {(own,): health.entropy}
    assert list(page["rtta_recent_predictions"].values()) == list(health.histogram)
    by_layer = {(own, ("layer", layer.name)): layer for layer in health.layers}
    assert page.get("rtta_divergence_nats", {}) == {k: v.divergence for k, v in by_layer.items()}
    assert page.get("rtta_source_weight", {}) == {k: v.source_weight for k, v in by_layer.items()}


def test_figures_that_are_unknown_are_left_out() -> None:
    """No entropy, no layer that a batch has reached."""
    health = Health("tema", 0, 0, 0, 0, None, (), (LayerReport("bn", "BatchNorm2d", 3),))
    page = parse(prometheus_text(health))
    counted = ("batches", "images", "skipped", "resets", "rollbacks", "source_answers")
    assert set(page) == {f"rtta_{name}_total" for name in counted}


def test_labels_of_the_users_own_are_escaped() -> None:
    nasty = 'north "gate"\\\nline two'
    page = parse(prometheus_text(health_of(), camera=nasty))
    (labels,) = page["rtta_batches_total"]
    assert dict(labels) == {"method": "rectified_tema", "camera": nasty}


def test_the_strict_reader_refuses_other_text() -> None:
    good = prometheus_text(health_of())
    for bad in (good[:-1], good.replace("{", "("), good + good, good.replace("counter", "count")):
        with pytest.raises(AssertionError):
            parse(bad)


def test_scalars_are_all_figures_of_health() -> None:
    health = health_of()
    found = scalars(health)
    assert found["images"] == 8
    assert found["entropy"] == health.entropy
    assert [found[f"class/{place}"] for place in range(5)] == list(health.histogram)
    for layer in health.layers:
        assert found[f"divergence/{layer.name}"] == layer.divergence
        assert found[f"source_weight/{layer.name}"] == layer.source_weight


def test_a_hook_writes_every_health_at_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a stand-in for torch's writer, wherever TensorBoard is not installed."""
    written: list[tuple[str, float, int]] = []

    class Writer:
        def add_scalar(self, tag: str, value: float, step: int) -> None:
            written.append((tag, value, step))

        def close(self) -> None:
            written.append(("closed", 0, 0))

    monkeypatch.setattr(tensorboard, "_writer", lambda _: Writer())
    adapted = adapt(convolutional(), "tema")
    with TensorBoard("anywhere") as board:
        adapted.register_health_hook(board)
        adapted(images(2))
        adapted(images(3))
    assert [(v, step) for tag, v, step in written if tag == "images"] == [(2, 1), (5, 2)]
    assert written[-1][0] == "closed"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorBoard's own
def test_the_event_file_can_be_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    events: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    adapted = adapt(convolutional(), "tema")
    with TensorBoard(tmp_path) as board:
        adapted.register_health_hook(board)
        for batch in stream([2, 3]):
            adapted(batch)
    read = events.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in read.Scalars("images")] == [(1, 2), (2, 5)]
    last = read.Scalars("divergence/1")[-1].value
    assert last == pytest.approx(adapted.health().layers[0].divergence, rel=1e-6)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is not None, reason="it is installed")
def test_without_tensorboard_the_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="pip install tensorboard"):
        TensorBoard(tmp_path)
