"""`rtta report`: one HTML file that holds its data, its program and its looks.

page_data.py computes what is shown; template.html, page.css and the page_*.js files show it;
vendor/ is the plotting library. Nothing is fetched when the page is looked at: its
Content-Security-Policy forbids it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template

from realistic_tta.benchmark.results import Record, write_whole
from realistic_tta.errors import ResultsError

from .page_data import embedded, page_data
from .page_layers import read_layers

SCRIPTS = ("page_state.js", "page_tables.js", "page_plots.js", "page_download.js", "page.js")
LIBRARY = "vendor/plotly-cartesian.min.js"


def write_page(records: Sequence[Record], folder: Path, out: Path, package: str) -> None:
    """folder: of the results, for the traces. package: the version that makes the page."""
    if not records:
        raise ResultsError(f"{folder}: no record fits; `rtta results --dir {folder}` lists all")
    write_whole(out, page(records, folder, package).encode())


def page(records: Sequence[Record], folder: Path, package: str) -> str:
    """The page as text; records in the order of the tables."""
    layers, left_out = read_layers(records, folder)
    data = page_data(records, layers)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    data |= {"about": {"made": made, "package": package, "layers_left_out": left_out}}
    first, *rest = data["groups"][0]["headline"]
    return Template(_asset("template.html")).substitute(
        headline=html.escape(first),
        more=html.escape(" ".join(rest)),
        count=len(records),
        made=made,
        package=html.escape(package),
        style=_asset("page.css"),
        library=_asset(LIBRARY),
        data=embedded(data),
        program="\n".join(_asset(name) for name in SCRIPTS),
    )


def _asset(name: str) -> str:
    text = (files("realistic_tta.report") / name).read_text(encoding="utf-8")
    assert name == "template.html" or "</script" not in text.lower(), (
        f"{name} would end its element"
    )
    return text
