"""`rtta report`: one HTML file with data, program and styles, which works offline.

page_data.py computes the data; template.html, page.css and page_*.js show it; vendor/ is the
plotting library. The page's Content-Security-Policy forbids requests.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from realistic_tta.benchmark.results import Record, write_file
from realistic_tta.errors import ResultsError

from .page_data import page_data, read_layers

SCRIPTS = ("page_state.js", "page_tables.js", "page_plots.js", "page_download.js", "page.js")
LIBRARY = "vendor/plotly-cartesian.min.js"


def write_page(records: Sequence[Record], folder: Path, out: Path, package: str) -> None:
    """Writes the page. folder: of the results, for the traces. package: its version."""
    if not records:
        raise ResultsError(f"{folder}: no record matches; `rtta results --dir {folder}` lists all")
    write_file(out, page(records, folder, package).encode())


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


def embedded(data: Mapping[str, Any]) -> str:
    r"""JSON that cannot end the script element it is embedded in.

    >>> embedded({"message": "</script>"})
    '{"message":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _asset(name: str) -> str:
    text = (files("realistic_tta.report") / name).read_text(encoding="utf-8")
    assert name == "template.html" or "</script" not in text.lower(), (
        f"{name} would end its element"
    )
    return text
