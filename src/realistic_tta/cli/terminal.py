"""Text for a terminal: columns, marks for the best two, spark lines. Plain signs elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", ".:-=+*#@"  # low to high
Course = Sequence[tuple[int, float]]  # images seen, error
ESCAPES = re.compile(r"\033\[\d*m")


def has_styles() -> bool:
    """Whether bold and underlined text can be shown where the output goes."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def text_width() -> int:
    """Signs in a line."""
    return shutil.get_terminal_size().columns


def marked(text: str, rank: int, *, styles: bool) -> str:
    """1: best, bold; 2: second best, underlined; as in the paper. Signs where there are no styles.

    >>> marked("12.3", 1, styles=False), marked("12.3", 2, styles=False)
    ('12.3*', '12.3+')
    """
    if not rank:
        return text
    return f"\033[{1 if rank == 1 else 4}m{text}\033[0m" if styles else text + "*+"[rank - 1]


def legend(*, styles: bool) -> str:
    """What the marks say."""
    best, second = ("bold:", "underlined:") if styles else ("*", "+")
    return f"{best} best of the column, {second} second best"


def columns_as_text(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines whose columns stand below each other; escapes take no room."""
    widths = [max(map(_length, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell + " " * (width - _length(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _length(text: str) -> int:
    return len(ESCAPES.sub("", text))


def cut(text: str, width: int) -> str:
    """At most `width` signs, if the output is a terminal; files and pipes get all."""
    return text[: width - 1] + "…" if sys.stdout.isatty() and len(text) > width else text


def sparks(courses: Sequence[Course], width: int, bars: str = BARS) -> list[str]:
    """Errors over the stream as bars, all on one scale, at most `width` signs each.

    >>> sparks([[(8, 0.0), (16, 70.0)], [(8, 30.0), (16, 40.0)], []], 20)
    ['▁█', '▄▅', '']
    """
    pooled = [_pool([error for _, error in course], width) for course in courses]
    known = [error for errors in pooled for error in errors]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    levels = len(bars) / span if span else 0.0
    return ["".join(bars[_level(levels * (e - low), bars)] for e in few) for few in pooled]


def _pool(errors: Sequence[float], width: int) -> list[float]:
    """Means of neighbours, so that no more than `width` are left."""
    count = min(len(errors), width)
    edges = [len(errors) * place // count for place in range(count + 1)] if count else []
    return [fmean(errors[a:b]) for a, b in pairwise(edges)]


def _level(height: float, bars: str) -> int:
    return min(int(height), len(bars) - 1)


def bars_here() -> str:
    """Bars that the output's encoding has."""
    try:
        BARS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return PLAIN_BARS
    return BARS
