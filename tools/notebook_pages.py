"""Notebooks as pages of the site: a hook of mkdocs.yml.

docs/notebooks/NAME.ipynb, with the outputs it is stored with, becomes the page notebooks/NAME.md.
Links in the documents lead to the .ipynb, which GitHub shows; on the site they lead to the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each notebook; the notebook itself stays, to be downloaded."""
    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        notebook = json.loads(Path(str(file.abs_src_path)).read_text())
        name = Path(file.src_uri).with_suffix(".md").as_posix()
        text = (
            f"{page(notebook)}\n\n<small>[Download the notebook]({Path(name).stem}.ipynb)</small>"
        )
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Makes links lead to the pages of notebooks, except the link to download one."""
    return re.sub(r"(?<!Download the notebook\]\()(\b[\w/]+)\.ipynb\)", r"\1.md)", markdown)


def page(notebook: dict[str, Any]) -> str:
    """The notebook as Markdown.

    >>> cells = [{"cell_type": "markdown", "source": ["# Fog"]}]
    >>> page({"cells": cells})
    '# Fog'
    """
    return "\n\n".join(part for cell in notebook["cells"] for part in parts(cell))


def parts(cell: dict[str, Any]) -> list[str]:
    """The cell as Markdown: text unchanged, or code in a fence with its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    shown = [f"```python\n{source}\n```"]
    for drawn, few in groupby(cell["outputs"], key=lambda output: "data" in output):
        outputs = list(few)
        shown += map(picture, outputs) if drawn else [printed(outputs)]
    return shown


def picture(output: dict[str, Any]) -> str:
    """A picture of a cell, embedded in the page."""
    return (
        f"![drawn by the cell above](data:image/png;base64,{output['data']['image/png'].strip()})"
    )


def printed(outputs: Iterable[dict[str, Any]]) -> str:
    r"""The text that a cell printed, in one block.

    >>> printed([{"text": ["fog: 35\n"]}, {"text": ["adapted: 18\n"]}])
    '```text\nfog: 35\nadapted: 18\n```'
    """
    text = "".join("".join(output["text"]) for output in outputs)
    return f"```text\n{text.rstrip()}\n```"
