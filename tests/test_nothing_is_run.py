"""Reading a file executes nothing: calls that the source may not contain."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import realistic_tta

PACKAGE = Path(realistic_tta.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Functions that execute their argument, or read files that can execute something.
FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "marshal.loads",
    "shelve.open",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "runpy.run_path",
    "torch.hub.load",
    "torch.jit.load",
    "importlib.import_module",
}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "runpy"}
MAY_IMPORT = {"data/cifar_batches.py": {"pickle"}}  # by a reader that builds arrays only
# Bytes inside a pickle that the user's own program is unpickling.
MAY_CALL = {"serving/served_model.py": ["torch.load"]}


def called(node: ast.Call) -> str:
    """The dotted name of the function that is called; empty for anything else.

    >>> called(ast.parse("torch.load(x)").body[0].value)
    'torch.load'
    """
    return ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""


def faults(source: str, may_import: frozenset[str] = frozenset()) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name, given = (
                called(node),
                {word.arg: ast.unparse(word.value) for word in node.keywords},
            )
            found += [name] if name in FORBIDDEN else []
            found += [name] if name == "torch.load" and given.get("weights_only") != "True" else []
            found += [name] if given.get("allow_pickle", "False") != "False" else []
            found += [f"{name} in a shell"] if given.get("shell", "False") != "False" else []
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            tops = {name.split(".")[0] for name in names}
            found += [f"import {name}" for name in sorted((tops & MODULES) - may_import)]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_source_executes_nothing_that_it_reads(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    allowed = frozenset(MAY_IMPORT.get(name, set()))
    assert faults(path.read_text(), allowed) == MAY_CALL.get(name, [])


@pytest.mark.parametrize(
    "source",
    [
        "eval(x)",
        "import pickle",
        "from pickle import loads",
        "torch.load(x)",
        "torch.load(x, weights_only=False)",
        "np.load(x, allow_pickle=True)",
        "subprocess.run(x, shell=True)",
        "yaml.load(x)",
        "os.system(x)",
    ],
)
def test_a_forbidden_call_would_be_found(source: str) -> None:
    assert faults(source)


def test_allowed_calls_are_not_found() -> None:
    good = "torch.load(x, weights_only=True); np.load(x); subprocess.run([x]); re.compile(x)"
    assert faults(good) == []
