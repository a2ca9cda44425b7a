"""The style of all figures: colors, markers and lines of the methods, sizes, and files.

The colors are those of Okabe and Ito and of Tol, safe for color-blind readers. Each method also has
its own marker and line style, for black-and-white print.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from realistic_tta.benchmark.results import write_file
from realistic_tta.errors import ResultsError, unknown

Given = ParamSpec("Given")
# In the order of legends.
STYLES: dict[str, dict[str, Any]] = {
    "source": {"color": "#555555", "marker": "s", "linestyle": "--"},
    "tbn": {"color": "#D55E00", "marker": "X", "linestyle": "-"},
    "alpha_bn": {"color": "#CC79A7", "marker": "v", "linestyle": "-."},
    "adapt_bn": {"color": "#C98A00", "marker": "^", "linestyle": ":"},
    "tema": {"color": "#3A9BD0", "marker": "D", "linestyle": "-"},
    "rectified_tema": {"color": "#0072B2", "marker": "o", "linestyle": "-", "linewidth": 2.6},
    "realistic": {"color": "#AA3377", "marker": "d", "linestyle": "-", "linewidth": 2.6},
    "lame": {"color": "#000000", "marker": "P", "linestyle": ":"},
    "tent": {"color": "#009E73", "marker": ">", "linestyle": "-."},
    "eta": {"color": "#117733", "marker": "<", "linestyle": "--"},
    "sar": {"color": "#882255", "marker": "*", "linestyle": "-"},
    "cotta": {"color": "#999933", "marker": "h", "linestyle": "-."},
    "adacontrast": {"color": "#332288", "marker": "p", "linestyle": "--"},
}
OTHER = {"color": "#777777", "marker": ".", "linestyle": "-"}  # a method that is not listed
HEAT = "cividis"
FORMATS = ("png", "svg")
DPI = 150
RC = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.titlesize": 11,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.handlelength": 4,  # long enough to show dashes
    "lines.linewidth": 1.5,
    "lines.markersize": 5.5,
    "svg.hashsalt": "realistic-tta",  # reproducible ids
}


def in_style(draw: Callable[Given, Figure]) -> Callable[Given, Figure]:
    """Draws with RC, independent of the user's own settings."""

    @functools.wraps(draw)
    def styled(*args: Given.args, **kwargs: Given.kwargs) -> Figure:
        with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **RC}):  # type: ignore[dict-item]
            return draw(*args, **kwargs)

    return styled


def new_panels(
    rows: int, columns: int, size: tuple[float, float], title: str, **how: Any
) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row. size: of one panel in inches, without labels."""
    width = size[0] * columns
    figure = Figure(figsize=(width, size[1] * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    wide = round(11 * width)  # letters
    rows_of_title = [fill(line, wide, break_on_hyphens=False) for line in title.splitlines()]
    figure.suptitle("\n".join(rows_of_title), x=0.01, ha="left")
    panels = figure.subplots(rows, columns, squeeze=False, **how)
    return figure, [panel for row in panels for panel in row]


def look(name: str) -> dict[str, Any]:
    """The style of a line. name: a method, or `tema (start=source)`, drawn with open markers."""
    method, _, hyperparameters = name.partition(" ")
    style = STYLES.get(method, OTHER)
    return (
        {**style, "markerfacecolor": "white", "linestyle": ":"} if hyperparameters else dict(style)
    )


def place(name: str) -> tuple[int, str]:
    """Sort key: the order of legends."""
    method, places = name.partition(" ")[0], list(STYLES)
    return places.index(method) if method in STYLES else len(places), name


def batch_size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis with a tick at each size."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(sizes), [str(size) for size in sorted(sizes)])
    axes.minorticks_off()
    axes.set_xlabel("batch size (images)")


def legend_beside(figure: Figure) -> None:
    """One legend for all panels, outside of them."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        found = dict(zip(names, handles, strict=True)) | found
    names = sorted(found, key=place) if set(found) & set(STYLES) else list(found)
    figure.legend([found[name] for name in names], names, loc="outside right center")


def write_figure(figure: Figure, path: Path) -> None:
    """Writes PNG or SVG, by the file's ending; the same figure gives the same bytes."""
    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ResultsError(unknown("format", kind, FORMATS))
    content = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context(RC):  # type: ignore[arg-type]
        figure.savefig(content, format=kind, dpi=DPI, metadata=metadata)
    write_file(path, content.getvalue())
