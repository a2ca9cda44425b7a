"""How every figure looks: colours, markers and lines of the methods, sizes, and files.

Colours are Okabe and Ito's and Tol's, told apart by every eye; each method has a marker and a line
of its own as well, for print in black and white. Heat maps grow lighter with the number.
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

from realistic_tta.benchmark.results import write_whole
from realistic_tta.errors import ResultsError, unknown

Given = ParamSpec("Given")
# In the order in which legends list them; as demo/picture.py where both show a method.
STYLES: dict[str, dict[str, Any]] = {
    "source": {"color": "#555555", "marker": "s", "linestyle": "--"},
    "tbn": {"color": "#D55E00", "marker": "X", "linestyle": "-"},
    "alpha_bn": {"color": "#CC79A7", "marker": "v", "linestyle": "-."},
    "adapt_bn": {"color": "#E69F00", "marker": "^", "linestyle": ":"},
    "tema": {"color": "#56B4E9", "marker": "D", "linestyle": "-"},
    "rectified_tema": {"color": "#0072B2", "marker": "o", "linestyle": "-", "linewidth": 2.6},
    "realistic": {"color": "#AA3377", "marker": "d", "linestyle": "-", "linewidth": 2.6},
    "domains": {"color": "#EE6677", "marker": "H", "linestyle": "-"},
    "lame": {"color": "#000000", "marker": "P", "linestyle": ":"},
    "tent": {"color": "#009E73", "marker": ">", "linestyle": "-."},
    "eta": {"color": "#117733", "marker": "<", "linestyle": "--"},
    "sar": {"color": "#882255", "marker": "*", "linestyle": "-"},
    "cotta": {"color": "#999933", "marker": "h", "linestyle": "-."},
    "adacontrast": {"color": "#332288", "marker": "p", "linestyle": "--"},
}
OTHER = {"color": "#777777", "marker": ".", "linestyle": "-"}  # a method added by somebody
HEAT = "cividis"
FORMATS = ("png", "svg")
DPI = 150
SETTINGS = {
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
    "legend.handlelength": 4,  # so that a dashed line is seen to be one
    "lines.linewidth": 1.5,
    "lines.markersize": 5.5,
    "svg.hashsalt": "realistic-tta",  # else every file has other ids
}


def in_style(draw: Callable[Given, Figure]) -> Callable[Given, Figure]:
    """Lets a function draw with SETTINGS, whatever the user's own are."""

    @functools.wraps(draw)
    def styled(*args: Given.args, **kwargs: Given.kwargs) -> Figure:
        with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **SETTINGS}):  # type: ignore[dict-item]
            return draw(*args, **kwargs)

    return styled


def new_panels(
    rows: int, columns: int, size: tuple[float, float], title: str, **how: Any
) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row. size: of one panel, inches, without labels."""
    width = size[0] * columns
    figure = Figure(figsize=(width, size[1] * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    wide = round(11 * width)  # letters
    rows_of_title = [fill(line, wide, break_on_hyphens=False) for line in title.splitlines()]
    figure.suptitle("\n".join(rows_of_title), x=0.01, ha="left")
    panels = figure.subplots(rows, columns, squeeze=False, **how)
    return figure, [panel for row in panels for panel in row]


def look(name: str) -> dict[str, Any]:
    """How a line is drawn. name: a method, or `tema (start=source)`, whose markers are hollow."""
    method, _, settings = name.partition(" ")
    style = STYLES.get(method, OTHER)
    return {**style, "markerfacecolor": "white", "linestyle": ":"} if settings else dict(style)


def place(name: str) -> tuple[int, str]:
    """To sort names as legends list them."""
    method, places = name.partition(" ")[0], list(STYLES)
    return places.index(method) if method in STYLES else len(places), name


def batch_size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Logarithmic, a tick at each size that was run."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(sizes), [str(size) for size in sorted(sizes)])
    axes.minorticks_off()
    axes.set_xlabel("batch size (images)")


def legend_beside(figure: Figure) -> None:
    """What the lines of all panels are, outside them, where it cannot hide one."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        found = dict(zip(names, handles, strict=True)) | found
    names = sorted(found, key=place) if set(found) & set(STYLES) else list(found)
    figure.legend([found[name] for name in names], names, loc="outside right center")


def write_figure(figure: Figure, path: Path) -> None:
    """PNG or SVG by the file's ending; whole or not at all, the same bytes for the same figure."""
    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ResultsError(unknown("format", kind, FORMATS))
    content = io.BytesIO()
    nameless = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        figure.savefig(content, format=kind, dpi=DPI, metadata=nameless)
    write_whole(path, content.getvalue())
