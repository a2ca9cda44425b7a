"""A Health as a page that Prometheus reads: its text exposition format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from realistic_tta.methods.health import Health

Sample = tuple[dict[str, str], float]  # labels and value


def prometheus_text(health: Health, **labels: str) -> str:
    """The page; labels, for instance camera="north gate", stand on every line of it.

    >>> health = Health("tema", 1, 8, 0, 0, 8, 1.5, (8, 0), ())
    >>> print(prometheus_text(health).splitlines()[2])
    rtta_batches_total{method="tema"} 1
    """
    common = {"method": health.method, **labels}
    lines: list[str] = []
    for name, kind, text, samples in _metrics(health):
        if samples := list(samples):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_braces(common | own)} {value!r}" for own, value in samples]
    return "\n".join(lines) + "\n"


def _metrics(health: Health) -> Iterable[tuple[str, str, str, Iterable[Sample]]]:
    """Name, kind, explanation and samples of everything that is shown."""
    entropy: list[Sample] = [] if health.entropy is None else [({}, health.entropy)]
    recent: list[Sample] = [
        ({"class": str(place)}, count) for place, count in enumerate(health.histogram)
    ]
    return [
        ("rtta_batches_total", "counter", "Batches predicted.", [({}, health.batches)]),
        ("rtta_images_total", "counter", "Images predicted.", [({}, health.images)]),
        ("rtta_excluded_total", "counter", "Faulty images left out.", [({}, health.excluded)]),
        ("rtta_resets_total", "counter", "Times all was forgotten.", [({}, health.resets)]),
        ("rtta_falls_total", "counter", "Times the guard took it back.", [({}, health.falls)]),
        ("rtta_by_source_total", "counter", "Images left to the source.", [({}, health.by_source)]),
        ("rtta_entropy_nats", "gauge", "Mean entropy of recent predictions.", entropy),
        ("rtta_recent_predictions", "gauge", "Recent predictions by class.", recent),
        ("rtta_divergence_nats", "gauge", "From the source.", _by_layer(health, "divergence")),
        ("rtta_source_weight", "gauge", "Of the source.", _by_layer(health, "source_weight")),
    ]


def _by_layer(health: Health, figure: str) -> Iterable[Sample]:
    for layer in health.layers:
        if (value := getattr(layer, figure)) is not None:
            yield {"layer": layer.name}, value


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
