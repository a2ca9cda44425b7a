"""Checks the prose of README, docs and docstrings: part of `make check`.

    python tools/prose.py

- phrases that the documentation does not use;
- sentences: nine of ten have at most 30 words, on every page;
- length: README, each page, all pages;
- spelling, American, by codespell.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
SOURCES = sorted(ROOT.glob("src/**/*.py"))
PHRASES = {  # what not to write, and what to write
    r"\bas far as\b": "say which",
    r"\b(is|are|was) (told|had)\b": "knows, gets, is set",
    r"\bfor to\b": "to",
    r"\b(goes|go|going) on\b": "continues, resumes",
    r"\bin the mirror\b": "with a horizontal flip",
    r"\bto the last bit\b": "bit-identical",
    r"\bhardly knows\b": "is nearly independent of",
    r"\bunheard\b": "its predictions are not returned",
    r"\basks nobody\b": "works offline",
    r"\blook back\b(?! until)": "average over earlier batches",
    r"\bcourse\b": "error curve",
    r"\bprogram is not kept\b": "run it again",
    r"\bmeasured (apart|before)\b": "run it again",
    r"\bin brackets\b": "in parentheses",
    r"\bgives most for least\b": "accuracy against cost",
    r"\bsecond looks?\b": "test-time augmentation",
    r"\bstay behind\b": "is shrunk",
    r"\bof both\.": "name the two",
    r"\bseen to\b": "handled",
    r"\blikeness\b": "similarity",
    r"\bdoubt(ful)?\b": "standard error",
    r"(?:^|[.:] )Who [a-z]+(?! [^.]*\?)": "name the reader",
    r"(?:^|[.] )What (?!batch size)[a-z]+ [^.?]*\.": "begin with the subject",
    r", too[.,]": "also",
}
WORDS = {"README.md": 1500, "page": 1500, "docs": 16_500}
SENTENCE = 30  # words, for nine of ten
PRINTED = re.compile(r"<!-- table: .*?<!-- end -->", flags=re.DOTALL)
BLOCKS = re.compile(r"```.*?```", flags=re.DOTALL)


def prose(page: str) -> str:
    r"""The sentences of a Markdown page: no code, no tables, no headings; items end in a full stop.

    >>> prose("# A title\n\nOne sentence.\n\n    code\n\n- an item\n")
    'One sentence. an item.'
    """
    text = BLOCKS.sub("", PRINTED.sub("", page))
    kept: list[str] = []
    for line in text.splitlines():
        if re.match(r"( {4}|\t|#|\||!\[|<)", line):
            kept.append("")
        else:
            kept.append(re.sub(r"^\s*([-*]|\d+\.) ", "\n", line))
    paragraphs = re.split(r"\n\s*\n|\n(?=\n)", "\n".join(kept))
    joined = [" ".join(each.split()) for each in paragraphs if each.strip()]
    return " ".join(each if each[-1] in ".:?!" else f"{each}." for each in joined)


def sentences(text: str) -> list[int]:
    """The number of words of every sentence.

    >>> sentences("It adapts. It takes one `model(x)` and returns logits.")
    [2, 7]
    """
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))
    return [len(each.split()) for each in re.split(r"(?<=[.:?!]) ", plain) if each.strip()]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Every docstring of a file, with its line."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def phrases(text: str) -> Iterator[str]:
    """What is ruled out, and what to write instead.

    >>> list(phrases("The stream goes on."))
    ['"goes on"; write: continues, resumes']
    """
    for pattern, instead in PHRASES.items():
        flags = re.IGNORECASE if pattern.startswith(r"\b") else re.NOFLAG
        for found in re.finditer(pattern, text, flags=flags):
            yield f'"{found[0].strip()}"; write: {instead}'


def words(page: Path) -> int:
    """Words of a page, without what programs print into it."""
    return len(PRINTED.sub("", page.read_text()).split())


def problems() -> Iterator[str]:
    """Everything that is wrong, one line each."""
    for page in PAGES:
        name, text = page.relative_to(ROOT), prose(page.read_text())
        if name.name != "CHANGELOG.md":
            yield from (f"{name}: {each}" for each in phrases(text))
        lengths = sentences(text)
        if len(lengths) > 10 and (long := quantiles(lengths, n=10)[-1]) > SENTENCE:
            yield f"{name}: one of ten sentences has more than {long:.0f} words; at most {SENTENCE}"
    for path in SOURCES:
        for line, text in docstrings(path):
            yield from (f"{path.relative_to(ROOT)}:{line}: {each}" for each in phrases(text))
    docs = {page: words(page) for page in PAGES if "docs" in page.parts[:-1]}
    for page, count in docs.items():
        if count > WORDS["page"]:
            yield f"{page.relative_to(ROOT)}: {count} words; at most {WORDS['page']}"
    if sum(docs.values()) > WORDS["docs"]:
        yield f"docs: {sum(docs.values())} words; at most {WORDS['docs']}"
    yield from misspelled()


def misspelled() -> Iterator[str]:
    """What codespell finds in pages and sources."""
    command = [sys.executable, "-m", "codespell_lib", "--builtin", "clear,rare,en-GB_to_en-US"]
    files = [*PAGES, *SOURCES]
    ran = subprocess.run(  # noqa: S603 - our own
        [*command, "--ignore-words-list", "lama", *map(str, files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    yield from (line.removeprefix(f"{ROOT}/") for line in ran.stdout.splitlines())
    if ran.returncode and not ran.stdout:
        yield ran.stderr


def main() -> int:
    found = list(problems())
    print("\n".join(found) or "prose: no problems")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
