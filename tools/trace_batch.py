"""Follows one batch of each statistics method through the code, file by file.

    python tools/trace_batch.py               a table for all methods, batch sizes 16 and 1
    python tools/trace_batch.py realistic     every function in the order of its first call

Counts the files of this package that the second batch enters, and how often the file changes from
one function to the next, in the order in which functions are first called. Exits with 1 if a method
needs more than 12 files or 30 changes.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import realistic_tta
from realistic_tta.models.resnet import CifarResNet

MAX_FILES, MAX_CHANGES = 12, 30
PACKAGE = Path(realistic_tta.__file__).parent
METHODS = ("source", "tbn", "alpha_bn", "adapt_bn", "tema", "rectified_tema", "realistic")


def functions_entered(method: str, batch_size: int) -> list[CodeType]:
    """The functions of this package that the second batch calls, in order of their first call."""
    torch.manual_seed(0)
    adapted = realistic_tta.adapt(CifarResNet(20, 10), method)
    images = torch.rand(batch_size, 3, 32, 32)
    adapted(images)
    found: dict[CodeType, None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        ours = PACKAGE in path.parents and PACKAGE / "models" not in path.parents
        if event == "call" and ours:
            found.setdefault(frame.f_code)

    sys.setprofile(profile)
    try:
        adapted(images)
    finally:
        sys.setprofile(None)
    return list(found)


def name_of(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(PACKAGE))


def count(functions: list[CodeType]) -> tuple[int, int]:
    """Files entered, and changes of file."""
    files = [name_of(each) for each in functions]
    changes = sum(before != after for before, after in itertools.pairwise(files))
    return len(set(files)), changes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("method", nargs="?", choices=METHODS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.method:
        for code in functions_entered(arguments.method, 16):
            print(f"{name_of(code):36} {code.co_qualname}")
        return 0
    print(f"{'method':16}{'batch size':>12}{'files':>8}{'changes':>9}")
    too_many = False
    for method in METHODS:
        for batch_size in (16, 1):
            files, changes = count(functions_entered(method, batch_size))
            too_many |= files > MAX_FILES or changes > MAX_CHANGES
            print(f"{method:16}{batch_size:>12}{files:>8}{changes:>9}")
    return int(too_many)


if __name__ == "__main__":
    sys.exit(main())
