"""The page reference/command_line.md of the site, from the parsers of `rtta`: a hook of mkdocs.yml.

The page in docs has the introduction; the help of every command follows it.
"""

from __future__ import annotations

import contextlib
import io
import os

from mkdocs.structure.pages import Page

from realistic_tta.cli import main as cli

PAGE = "reference/command_line.md"
PARENTS = {"data": ("list", "get", "check")}  # commands that have commands


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Appends the help of all commands to the page."""
    if page.file.src_uri != PAGE:
        return markdown
    names = [command.__name__.rsplit(".", 1)[1] for command in cli.COMMANDS]
    commands = [(name, *below) for name in names for below in [(), *nested(name)]]
    return "\n\n".join([markdown, *map(section, commands)])


def nested(name: str) -> list[tuple[str]]:
    """The commands of a command.

    >>> nested("data"), nested("bench")
    ([('list',), ('get',), ('check',)], [])
    """
    return [(each,) for each in PARENTS.get(name, ())]


def section(words: tuple[str, ...]) -> str:
    """A heading and the help of one command.

    >>> section(("momentum",)).splitlines()[0]
    '## rtta momentum'
    """
    os.environ["COLUMNS"] = "88"  # the width that argparse wraps at
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli.main([*words, "--help"])
    return f"## rtta {' '.join(words)}\n\n```text\n{printed.getvalue().rstrip()}\n```"
