"""Draws the demo's figures: what the network meets, and what each method makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from realistic_tta.benchmark.data import open_stream
from realistic_tta.benchmark.results import Record
from realistic_tta.data.registry import CORRUPTIONS

from .experiment import DATA, Setup
from .words import BEST, USUAL, Errors, errors_of

SHOWN = 17  # which photograph of the sample: a horse
# Okabe and Ito's colours, told apart by every eye; markers for print in black and white.
STYLES: dict[str, dict[str, Any]] = {
    "source": {"color": "#555555", "marker": "s", "linestyle": "--"},
    "tbn": {"color": "#D55E00", "marker": "X"},
    "alpha_bn": {"color": "#CC79A7", "marker": "v"},
    "adapt_bn": {"color": "#E69F00", "marker": "^"},
    "tema": {"color": "#56B4E9", "marker": "D"},
    "rectified_tema": {"color": "#0072B2", "marker": "o"},
    "realistic": {"color": "#009E73", "marker": "P", "linewidth": 3},
}
COMPARED = ("source", USUAL, BEST)


def draw(records: Sequence[Record], setup: Setup, folder: Path, file: Path) -> None:
    """Writes the picture, PNG or SVG by the file's ending."""
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 6.2), layout="constrained")
        FigureCanvasAgg(figure)
        parts: Any = figure.subfigures(2, 1, height_ratios=[1, 4.6])
        top, bottom = parts
        _photographs(top, setup, folder)
        left, right = bottom.subplots(1, 2, width_ratios=[1, 1.35])
        _by_batch_size(left, errors_of(records, setup), setup)
        _by_corruption(right, records, setup.batch_sizes[-1])
        figure.savefig(file, dpi=110)


def _photographs(figure: Any, setup: Setup, folder: Path) -> None:
    """The same photograph under every corruption."""
    damaged = open_stream(DATA, setup.experiments()[0].plan, folder)
    shown = np.array([min(SHOWN, setup.images - 1)])
    figure.suptitle("One photograph, fifteen kinds of damage", x=0.01, ha="left", fontsize=11)
    places = figure.subplots(1, len(damaged.parts))
    for axes, part, images in zip(places, damaged.parts, damaged.contents, strict=True):
        axes.imshow(images.take(shown)[0], interpolation="bicubic")
        axes.set_title(part.corruption.replace("_", "\n", 1), fontsize=7)
        axes.set_axis_off()


def _by_batch_size(axes: Any, errors: Errors, setup: Setup) -> None:
    places = range(len(setup.batch_sizes))
    for method in setup.methods:
        row = [errors.get((method, size), math.nan) for size in setup.batch_sizes]
        axes.plot(places, row, label=method, **STYLES.get(method, {"marker": ".", "alpha": 0.7}))
    axes.set_xticks(places, [str(size) for size in setup.batch_sizes])
    axes.set_xlabel("images at once")
    axes.set_ylabel("wrong, mean over the corruptions (%)")
    axes.set_ylim(0, 100)
    axes.set_title("The fewer images at once, the worse for batch statistics", fontsize=11)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    axes.grid(axis="y", alpha=0.3)


def _by_corruption(axes: Any, records: Sequence[Record], small: int) -> None:
    """At the smallest batch size; a line joins as trained and adapted."""
    places = list(range(len(CORRUPTIONS)))[::-1]
    by_method = {
        record.method: [part.error for part in record.parts]
        for record in records
        if record.parts and (record.method == "source" or record.batch_size == small)
    }
    columns = {method: by_method[method] for method in COMPARED if method in by_method}
    if "source" in columns and BEST in columns:
        spans = columns["source"], columns[BEST]
        axes.hlines(places, *spans, color=STYLES[BEST]["color"], alpha=0.35, linewidth=4)
    for method, column in columns.items():
        look = {key: STYLES[method][key] for key in ("color", "marker")}
        axes.scatter(column, places, label=method, s=42, zorder=3, **look)
    axes.set_yticks(places, [name.replace("_", " ") for name in CORRUPTIONS])
    axes.set_xlim(0, 100)
    axes.set_xlabel("wrong (%)")
    axes.set_title(f"By corruption, images at once: {small}", fontsize=11)
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, -0.1), ncols=3, fontsize=9)
    axes.grid(axis="x", alpha=0.3)
