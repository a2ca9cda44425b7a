"""A Health in the text format that Prometheus reads, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .health import Health

Sample = tuple[dict[str, str], float]  # labels and value


def prometheus_text(health: Health, **labels: str) -> str:
    """The metrics as text; labels, for instance camera="north", are added to every line.

    >>> health = Health("tema", 1, 8, 0, 8, 1.5, (8, 0), ())
    >>> print(prometheus_text(health).splitlines()[2])
    rtta_batches_total{method="tema"} 1
    """
    common = {"method": health.method, **labels}
    lines: list[str] = []
    for name, metric_type, text, samples in _metrics(health):
        if samples := list(samples):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {metric_type}"]
            lines += [f"{name}{_braces(common | own)} {value!r}" for own, value in samples]
    return "\n".join(lines) + "\n"


def _metrics(health: Health) -> Iterable[tuple[str, str, str, Iterable[Sample]]]:
    """Name, type, help text and samples of every metric."""
    entropy: list[Sample] = [] if health.entropy is None else [({}, health.entropy)]
    recent: list[Sample] = [
        ({"class": str(place)}, count) for place, count in enumerate(health.histogram)
    ]
    return [
        ("rtta_batches_total", "counter", "Batches predicted.", [({}, health.batches)]),
        ("rtta_images_total", "counter", "Images predicted.", [({}, health.images)]),
        ("rtta_skipped_total", "counter", "Non-finite samples skipped.", [({}, health.skipped)]),
        ("rtta_resets_total", "counter", "Resets of the state.", [({}, health.resets)]),
        ("rtta_rollbacks_total", "counter", "Rollbacks by the guard.", [({}, health.rollbacks)]),
        (
            "rtta_source_answers_total",
            "counter",
            "Images answered by the source.",
            [({}, health.source_answers)],
        ),
        ("rtta_entropy_nats", "gauge", "Mean entropy of recent predictions.", entropy),
        ("rtta_recent_predictions", "gauge", "Recent predictions by class.", recent),
        (
            "rtta_divergence_nats",
            "gauge",
            "Divergence from the source.",
            _by_layer(health, "divergence"),
        ),
        (
            "rtta_source_weight",
            "gauge",
            "Weight of the source.",
            _by_layer(health, "source_weight"),
        ),
    ]


def _by_layer(health: Health, figure: str) -> Iterable[Sample]:
    for layer in health.layers:
        if (value := getattr(layer, figure)) is not None:
            yield {"layer": layer.name}, value


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
