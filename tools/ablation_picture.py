"""Draws the error of realistic without each of its pieces, from the records of `rtta ablate`.

rtta ablate realistic --images 40 --batch-sizes 16 --seeds 1,2 --out DIR
python tools/ablation_picture.py DIR docs/images/beyond.png
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from realistic_tta.benchmark.ablation import rows_of
from realistic_tta.benchmark.results import Record, Results
from realistic_tta.report.style import STYLES, in_style, new_panels, write_figure

METHOD = "realistic"


@in_style
def draw(records: list[Record]) -> Figure:
    """A panel a setting, a bar a row, a dot a seed."""
    settings = sorted({record.setting for record in records})
    title = "realistic whole and without each piece: percent wrong, a dot a seed"
    figure, panels = new_panels(1, len(settings), (4.2, 3.2), title, sharey=True)
    for axes, setting in zip(panels, settings, strict=True):
        axes.set_title(setting)
        for place, row in enumerate(rows_of(METHOD)):
            _bar(axes, place, row, [each for each in records if each.setting == setting])
        axes.set_yticks(range(len(rows_of(METHOD))), list(rows_of(METHOD)))
        axes.set_xlabel("error (%)")
    panels[0].invert_yaxis()
    return figure


def _bar(axes: Axes, place: int, row: str, records: list[Record]) -> None:
    """The mean error of a row, and that of every seed."""
    wanted = rows_of(METHOD)[row]
    found = [r.error for r in records if (r.method, dict(r.settings)) == wanted]
    errors = [error for error in found if error is not None]
    if errors:
        colour = STYLES[wanted[0]]["color"]
        axes.barh(place, fmean(errors), color=colour, alpha=0.9 if row in STYLES else 0.45)
        axes.plot(errors, [place] * len(errors), "k.", markersize=3)


if __name__ == "__main__":
    folder, file = map(Path, sys.argv[1:])
    write_figure(draw(Results(folder).read(status="done")), file)
