"""Text for a terminal: aligned columns, marks for the best two values, spark lines."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", ".:-=+*#@"  # low to high
ErrorCurve = Sequence[tuple[int, float]]  # images seen, error
ESCAPES = re.compile(r"\033\[\d*m")


def has_styles() -> bool:
    """Whether stdout shows bold and underlined text."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def text_width() -> int:
    """The width of the terminal in characters."""
    return shutil.get_terminal_size().columns


def marked(text: str, rank: int, *, styles: bool) -> str:
    """Marks rank 1 (bold, or *) and rank 2 (underlined, or +).

    >>> marked("12.3", 1, styles=False), marked("12.3", 2, styles=False)
    ('12.3*', '12.3+')
    """
    if not rank:
        return text
    return f"\033[{1 if rank == 1 else 4}m{text}\033[0m" if styles else text + "*+"[rank - 1]


def legend(*, styles: bool) -> str:
    """The meaning of the marks."""
    best, second = ("bold:", "underlined:") if styles else ("*", "+")
    return f"{best} best of the column, {second} second best"


def columns_as_text(rows: Sequence[Sequence[str]], gap: str = "  ") -> list[str]:
    """Lines with aligned columns; escape sequences have no width."""
    widths = [max(map(_length, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            cell + " " * (width - _length(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _length(text: str) -> int:
    return len(ESCAPES.sub("", text))


def cut(text: str, width: int) -> str:
    """Cuts the text to `width` characters on a terminal; files and pipes get all of it."""
    return text[: width - 1] + "…" if sys.stdout.isatty() and len(text) > width else text


def sparks(curves: Sequence[ErrorCurve], width: int, bars: str = BARS) -> list[str]:
    """Error curves as bars on a common scale, at most `width` characters each.

    >>> sparks([[(8, 0.0), (16, 70.0)], [(8, 30.0), (16, 40.0)], []], 20)
    ['▁█', '▄▅', '']
    """
    pooled = [_pool([error for _, error in curve], width) for curve in curves]
    known = [error for errors in pooled for error in errors]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    levels = len(bars) / span if span else 0.0
    top = len(bars) - 1
    return ["".join(bars[min(int(levels * (e - low)), top)] for e in few) for few in pooled]


def _pool(errors: Sequence[float], width: int) -> list[float]:
    """Means of neighbors, at most `width` of them."""
    count = min(len(errors), width)
    edges = [len(errors) * place // count for place in range(count + 1)] if count else []
    return [fmean(errors[a:b]) for a, b in pairwise(edges)]


def supported_bars() -> str:
    """The bars that the encoding of stdout supports."""
    try:
        BARS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return PLAIN_BARS
    return BARS
