"""Every figure shows what the records say, with units, and hides nothing."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_subjects import part
from figure_subjects import IMAGES, LAYERS, METHODS, momentum_runs, run, runs, trace
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from realistic_tta import METHODS as ALL_METHODS
from realistic_tta.benchmark.results import Record
from realistic_tta.cli import bench
from realistic_tta.cli.main import main
from realistic_tta.data.registry import CORRUPTIONS
from realistic_tta.errors import ResultsError
from realistic_tta.report import style
from realistic_tta.report.catalog import FIGURES, draw
from realistic_tta.report.figures import (
    binned,
    cost_against_error,
    error_by_batch_size,
    error_by_corruption,
    error_over_stream,
    layers,
    pareto,
)
from realistic_tta.report.momentum_figures import DATASETS, draw_class_diversity, momentum_analysis
from realistic_tta.report.momentum_figures import SIZES as PAPERS_SIZES
from realistic_tta.report.style import STYLES

EVERYTHING = [*runs(), *momentum_runs("cifar10-c"), *momentum_runs("imagenet-c")]


def lines_of(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for line in axes.get_lines():
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        found[str(line.get_label())] = list(zip(x.tolist(), y.tolist(), strict=True))
    return found


def panels_of(figure: Figure) -> list[Axes]:
    """Without color bars."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def legend_of(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def filled(shown: ScalarMappable) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The numbers behind the colors, NaN where there is none."""
    return np.ma.filled(np.ma.asarray(shown.get_array(), dtype=float), np.nan)


def every_figure() -> list[tuple[str, Figure]]:
    return [pair for name in FIGURES for pair in draw(name, EVERYTHING, trace)]


# What is drawn is what was found.


def test_error_by_batch_size_has_a_line_a_method_through_its_errors() -> None:
    records = runs()
    figure = error_by_batch_size(records)
    (axes,) = figure.axes
    drawn = lines_of(axes)
    assert list(drawn) == list(METHODS) == legend_of(figure)
    for method in METHODS:
        expected = [(each.batch_size, each.error) for each in records if each.method == method]
        assert drawn[method] == sorted(expected)
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "4", "64"]
    assert axes.get_xlabel() == "batch size (images)"
    assert axes.get_ylabel() == "error, mean over corruptions (%)"


def test_seeds_are_averaged_and_their_spread_is_a_band() -> None:
    errors = {1: 10.0, 2: 20.0, 3: 60.0}
    records = [run("tbn", 4, seed, error=error) for seed, error in errors.items()]
    records.append(run("tbn", 1, 1, error=50.0))
    (axes,) = error_by_batch_size(records).axes
    assert lines_of(axes)["tbn"] == [(1, 50), (4, 30)]
    (band,) = axes.collections
    corners = {(x, y) for x, y in np.asarray(band.get_paths()[0].vertices)}
    assert {(1, 50), (4, 10), (4, 60)} <= corners


def test_other_settings_are_lines_of_their_own_and_fixed_momenta_are_left_out() -> None:
    records = [
        *runs(["tema"]),
        *runs(["tema"], hyperparameters={"start": "source"}),
        *momentum_runs()[5:],
    ]
    (axes,) = error_by_batch_size([each for each in records if each.dataset == "cifar10-c"]).axes
    plain, other = axes.get_lines()
    assert (plain.get_label(), other.get_label()) == ("tema", "tema (start=source)")
    assert plain.get_marker() == other.get_marker()
    assert other.get_markerfacecolor() == "white" != plain.get_markerfacecolor()


def expected_classes(classes: int, batch_size: int) -> float:
    """Eq. 2 as the paper writes it, term by term."""
    ways = math.comb(batch_size + classes - 1, classes - 1)
    terms = range(1, min(classes, batch_size) + 1)
    sums = sum(k * math.comb(batch_size - 1, k - 1) * math.comb(classes, k) for k in terms)
    return sums / ways


@pytest.mark.parametrize(
    ("panel", "classes", "trained", "factors"),
    [  # how many batches TEMA covers, by the momentum that the paper's authors give for each size
        (0, 10, 128, (229, 229, 21, 21, 1, 1)),
        (1, 100, 128, (229, 229, 21, 21, 1, 1)),
        (2, 1000, 256, (229, 229, 229, 21, 21, 1)),
    ],
)
def test_class_diversity_is_the_papers_sum(
    panel: int, classes: int, trained: int, factors: Sequence[int]
) -> None:
    drawn = lines_of(draw_class_diversity().axes[panel])
    assert PAPERS_SIZES == (1, 2, 4, 16, 64, 200)
    current = [expected_classes(classes, size) for size in PAPERS_SIZES]
    averaged = [
        expected_classes(classes, size * factor)
        for size, factor in zip(PAPERS_SIZES, factors, strict=True)
    ]
    assert [y for _, y in drawn["current batch"]] == pytest.approx(current)
    assert [y for _, y in drawn["TEMA, momentum by Eq. 5"]] == pytest.approx(averaged)
    source = expected_classes(classes, trained)
    assert [y for _, y in drawn["training batch"]] == pytest.approx([source] * 2)


def test_the_momentum_analysis_has_a_panel_a_data_set_and_a_line_a_momentum() -> None:
    records = [*momentum_runs("cifar10-c"), *momentum_runs("imagenet-c"), *runs(["source"])]
    figure = momentum_analysis(records)
    assert len(figure.axes) == 2
    for axes, data in zip(figure.axes, ("cifar10-c", "imagenet-c"), strict=True):
        drawn = {name: line for name, line in lines_of(axes).items() if name[0] != "_"}
        assert list(drawn) == ["m = 1", "m = 0.1", "m = 0.01", "m by Eq. 5"] == legend_of(figure)
        for label, hyperparameters in [("m by Eq. 5", {}), ("m = 0.1", {"momentum": 0.1})]:
            chosen = [r for r in records if (r.dataset, r.method) == (data, "tema")]
            expected = [
                (r.batch_size, r.error) for r in chosen if r.hyperparameters == hyperparameters
            ]
            assert drawn[label] == expected


@pytest.mark.parametrize(
    ("dataset", "choices"),
    [
        ("cifar10-c", {200: 1, 64: 1, 16: 0.1, 4: 0.1, 1: 0.01}),
        ("cifar100-c", {200: 1, 64: 1, 16: 0.1, 4: 0.1, 1: 0.01}),
        ("imagenet-c", {200: 1, 64: 0.1, 16: 0.1, 4: 0.01, 1: 0.01}),
    ],
)
def test_the_shaded_regions_are_the_choices_that_the_authors_publish(
    dataset: str, choices: dict[int, float]
) -> None:
    (axes,) = momentum_analysis(momentum_runs(dataset)).axes
    spans = [(patch.get_extents().transformed(axes.transData.inverted())) for patch in axes.patches]
    names = [float(text.get_text()) for text in axes.texts]
    for size, momentum in choices.items():
        inside = [name for name, span in zip(names, spans, strict=True) if span.x0 < size < span.x1]
        assert inside == [momentum], size


def test_error_over_the_stream_adds_up_to_the_error() -> None:
    records = runs()
    figure = error_over_stream(records)
    for axes, size in zip(figure.axes, (64, 1), strict=True):
        for method, line in lines_of(axes).items():
            (only,) = (r for r in records if (r.method, r.batch_size) == (method, size))
            assert len(line) == 15  # all of the same length
            assert np.mean([error for _, error in line]) == pytest.approx(only.error)
            assert [error for _, error in line] == pytest.approx([p.error for p in only.parts])
        assert len(axes.patches) == 7  # every second corruption
    names = [text.get_text() for text in figure.axes[0].texts]
    assert names == [name.replace("_", " ") for name in CORRUPTIONS]
    assert figure.axes[1].get_xlim() == (0, 15 * IMAGES)


def test_stretches_keep_every_image_whatever_the_points() -> None:
    random = np.random.default_rng(0)
    for points in (1, 2, 44, 45, 46, 200):
        seen = np.cumsum(random.integers(1, 90, points)).tolist()
        errors = (100 * random.random(points)).tolist()
        error_curve = list(zip(seen, errors, strict=True))
        found = binned(error_curve, 45)
        assert 1 <= len(found) <= min(points, 45)
        edge, wrong = 0.0, 0.0
        for middle, error in found:
            wrong += 2 * (middle - edge) * error
            edge += 2 * (middle - edge)
        assert edge == pytest.approx(seen[-1])
        assert wrong == pytest.approx(np.diff([0, *seen]) @ np.array(errors))


def test_a_mixed_stream_has_no_stripes() -> None:
    figure = error_over_stream(runs(scenario="mixed"))
    assert not [axes for axes in figure.axes if axes.patches or axes.texts]
    figure.canvas.draw()
    around = figure.axes[0].get_tightbbox()
    assert around is not None
    assert around.height < 1.25 * figure.axes[0].get_window_extent().height, "no room for names"


def test_the_heat_map_holds_the_error_of_every_corruption() -> None:
    records = runs()
    figure = error_by_corruption(records)
    for axes, size in zip(panels_of(figure), (64, 1), strict=True):
        (image,) = axes.images
        shown = np.asarray(image.get_array())
        expected = [[p.error for p in r.parts] for r in records if r.batch_size == size]
        assert shown == pytest.approx(np.array(expected))
        assert [tick.get_text() for tick in axes.get_yticklabels()] == list(METHODS)
        written = [int(text.get_text()) for text in axes.texts]
        assert written == [round(error) for row in expected for error in row]
    assert figure.axes[-1].get_ylabel() == "error (%)"


def test_the_heat_map_averages_severities_and_seeds_and_leaves_gaps_open() -> None:
    fog = [part("fog", severity, 10, wrong) for severity, wrong in ((4, 1), (5, 3))]
    snow = part("snow", 5, 10, 5)
    records = [run("tbn", 4, 1, parts=(*fog, snow)), run("tbn", 4, 2, parts=(*fog, snow))]
    records += [run("tema", 4, 1, parts=(fog[0],))]
    (axes, _) = error_by_corruption(records).axes
    shown = filled(axes.images[0])
    assert shown.tolist()[0] == [20, 50]
    assert shown.tolist()[1][0] == 10
    assert math.isnan(shown.tolist()[1][1])


def test_layers_are_shown_as_they_were_traced() -> None:
    figure = layers(runs(), trace)
    panels = panels_of(figure)
    for place, size in enumerate((64, 1)):
        points = trace(run("rectified_tema", size).key).points
        for axes, field in ((panels[place], "source_weight"), (panels[2 + place], "divergence")):
            shown = filled(axes.collections[0])
            expected = np.array([getattr(point, field) for point in points], dtype=float).T
            np.testing.assert_array_equal(shown, expected)
            assert axes.get_ylim() == (3, 0), "the input is on top"
    assert [tick.get_text() for tick in panels[0].get_yticklabels()] == list(LAYERS)
    bars = [axes.get_ylabel() for axes in figure.axes if axes not in panels]
    assert bars == ["source weight (ratio)", "divergence (nats)"]


def test_cost_against_error_has_a_point_a_method_and_joins_the_best() -> None:
    records = [*runs(), run("tent", 64, cost=None)]
    figure = cost_against_error(records)
    for axes, size in zip(figure.axes, (64, 1), strict=True):
        drawn = lines_of(axes)
        front = drawn.pop("Pareto front")
        few = [each for each in records if each.batch_size == size and each.cost is not None]
        assert drawn == {each.method: [(each.cost, each.error)] for each in few}
        points = [(each.cost or 0, each.error or 0) for each in few]
        assert front == sorted(brute_front(points))


def brute_front(points: Sequence[tuple[float, float]]) -> set[tuple[float, float]]:
    def beaten(one: tuple[float, float]) -> bool:
        return any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in points)

    return {point for point in points if not beaten(point)}


def test_the_front_is_what_no_other_beats() -> None:
    random = np.random.default_rng(1)
    for count in range(1, 12):
        points = [(float(x), float(y)) for x, y in random.integers(0, 6, (count, 2))]
        assert pareto(points) == sorted(brute_front(points))


def test_panels_are_for_the_batch_sizes_at_which_most_methods_ran() -> None:
    records = [*runs(sizes=[64, 16, 4]), run("tbn", 200), run("tema", 1)]
    for name in ("error_over_stream", "error_by_corruption", "cost_against_error"):
        ((_, figure),) = draw(name, records, trace)
        titles = [axes.get_title(loc="left") for axes in panels_of(figure)]
        assert titles == ["batch size 64", "batch size 4"], name


# How it is drawn.


def test_the_legend_lists_what_any_panel_shows() -> None:
    records = [*runs(["source"]), run("tema", 1), run("tbn", 64)]
    for draw_one in (error_over_stream, cost_against_error):
        listed = legend_of(draw_one(records))
        assert [name for name in listed if name in STYLES] == ["source", "tbn", "tema"]


def test_every_axis_says_its_unit() -> None:
    unit = re.compile(r"\([\w% ',.]+\)|images seen|^layer|stretch")
    for name, figure in every_figure():
        labels = [axes.get_xlabel() for axes in figure.axes]
        labels += [axes.get_ylabel() for axes in figure.axes]
        assert any(labels), name
        assert all(unit.search(label) for label in labels if label), (name, labels)


def boxes(figure: Figure) -> dict[str, Any]:
    """Where things are, in pixels, after the layout has been made."""
    figure.canvas.draw()
    found: dict[str, Any] = {  # with all their labels
        f"panel {n}": axes.get_tightbbox() for n, axes in enumerate(figure.axes)
    }
    found |= {f"legend {n}": each.get_window_extent() for n, each in enumerate(figure.legends)}
    assert figure._suptitle is not None  # type: ignore[attr-defined]
    return found | {"title": figure._suptitle.get_window_extent()}  # type: ignore[attr-defined]


def all_methods() -> list[Record]:
    return [*runs(list(ALL_METHODS)), *momentum_runs()]


@pytest.mark.parametrize("name", FIGURES)
def test_titles_legends_and_panels_do_not_overlap(name: str) -> None:
    """With all methods in it."""
    for _, figure in draw(name, all_methods(), trace):
        for (one, first), (other, second) in itertools.combinations(boxes(figure).items(), 2):
            assert not first.overlaps(second), (one, other)
        whole = figure.bbox
        for what, box in boxes(figure).items():
            assert whole.x0 <= box.x0, what
            assert box.x1 <= whole.x1, f"{what} is cut off"


def test_no_panel_is_empty() -> None:
    for name, figure in every_figure():
        for axes in panels_of(figure):
            assert axes.get_lines() or axes.images or axes.collections, name


def test_methods_differ_without_color_and_by_color() -> None:
    assert list(STYLES) == list(ALL_METHODS)
    for what in ("marker", "color"):
        assert len({style[what] for style in STYLES.values()}) == len(STYLES)


def test_a_method_looks_the_same_on_the_page() -> None:
    """Color, marker and line of the figures are those of the page on a light background."""
    of_matplotlib = "sXv^DodP><*hp"
    of_the_page = "square x triangle-down triangle-up diamond circle diamond-tall cross"
    of_the_page += " triangle-right triangle-left star hexagon pentagon"
    markers = dict(zip(of_matplotlib, of_the_page.split(), strict=True))
    lines = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
    program = (Path(style.__file__).parent / "page_state.js").read_text()
    entry = r'^  (\w+): \["(#\w+)", "#\w+", "([\w-]+)", "(\w+)"\],$'
    on_page = {name: look for name, *look in re.findall(entry, program, flags=re.MULTILINE)}
    assert on_page == {
        method: [each["color"].lower(), markers[each["marker"]], lines[each["linestyle"]]]
        for method, each in STYLES.items()
    }


def test_what_eq_5_must_know_is_what_the_runner_uses() -> None:
    from realistic_tta.benchmark.datasets import DATASETS as BENCHMARK_DATASETS

    assert set(DATASETS) == set(BENCHMARK_DATASETS)
    for name, facts in DATASETS.items():
        assert facts.source_batch_size == BENCHMARK_DATASETS[name].source_batch_size


# What is missing is said, with the command that makes it.


def no_trace(_: str) -> None:
    return None


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: error_by_batch_size(runs(sizes=[4])), "error_by_batch_size needs two batch sizes"),
        (lambda: error_by_batch_size([]), "error_by_batch_size needs finished experiments"),
        (lambda: error_over_stream(momentum_runs()[5:]), "a method without a fixed momentum"),
        (lambda: error_by_corruption(momentum_runs()[5:]), "a method without a fixed momentum"),
        (lambda: layers(runs(), no_trace), "a trace of rectified_tema"),
        (lambda: layers(runs(["tema"]), trace), "a trace of rectified_tema"),
        (lambda: momentum_analysis(runs()), "tema with two fixed momentums or more"),
        (lambda: momentum_analysis([]), "tema with two fixed momentums or more"),
        (lambda: cost_against_error(runs(cost=None)), "records with a cost"),
    ],
)
def test_what_is_missing_is_said_with_a_command_that_can_be_run(
    make: Callable[[], Figure], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ResultsError, match=re.escape(told)) as raised:
        make()
    (command,) = re.findall(r"`rtta (.*)` creates", str(raised.value))
    planned: list[Any] = []
    monkeypatch.setattr(bench, "_bench", lambda given: planned.extend(bench._experiments(given)))
    assert main(shlex.split(command)) == 0
    assert planned


def test_records_of_two_streams_are_not_mixed() -> None:
    with pytest.raises(ResultsError, match="got 2: use by_group"):
        error_by_batch_size([*runs(), *runs(scenario="mixed")])
