"""Runs the notebooks of docs/notebooks and stores them with their outputs.

Times, paths and versions are not stored. After a change of a notebook:

    python tools/run_notebooks.py [NAME ...]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def main() -> None:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        begin = time.perf_counter()
        notebook = run(path)
        nbformat.write(notebook, path)
        print(
            f"{path.stem}: {time.perf_counter() - begin:.0f} s, {path.stat().st_size / 1e3:.0f} kB"
        )


def run(path: Path) -> Any:
    """The notebook with fresh outputs."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, record_timing=False).execute()
    notebook.metadata = nbformat.NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    return notebook


if __name__ == "__main__":
    main()
