"""The directions of design: which part may know of which, and what the import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import realistic_tta

PACKAGE = Path(realistic_tta.__file__).parent

# A part may import torch, the standard library, and of ours only what is named here.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "statistics": set(),
    "normalization": {"statistics", "errors"},
    "methods": {"normalization", "statistics", "whole_files", "errors"},
    "monitoring": {"methods", "statistics", "errors"},
    "networks": {"errors"},
    "datasets": {"errors"},
    "streams": {"datasets", "errors"},
    "strict_json": set(),
    "whole_files": set(),
    "results": {"strict_json", "whole_files", "errors"},
    "exports": {"results", "errors"},
    "traces": {"results", "strict_json", "errors"},
    "benchmark": {"streams", "methods", "datasets", "networks", "results", "traces", "errors"}
    | {"whole_files"},
    "report": {"results", "exports", "traces", "statistics", "errors"},
    "faults": {"benchmark", "methods", "streams", "datasets", "networks", "statistics", "results"}
    | {"strict_json", "errors"},
    "demo": {"benchmark", "datasets", "networks", "results"},
}
THIRD_PARTY: dict[str, set[str]] = {
    "datasets": {"numpy", "PIL", "cv2", "scipy"},
    "streams": {"numpy"},
    "benchmark": {"numpy", "ray"},
    "demo": {"numpy", "matplotlib", "rich"},
    "faults": {"numpy"},
    "report": {"matplotlib"},
}
# Packages that a part may import inside a function, for those who use what needs them.
MAY_IMPORT_LATE: dict[str, set[str]] = {
    "networks": {"safetensors"},
    "statistics": {"numpy"},
    "methods": {"safetensors"},
    "exports": {"pandas"},
    "benchmark": {"yaml"},
}
NO_TORCH = {"strict_json", "whole_files", "results", "exports", "traces", "report"}
FREE = {"__init__", "__main__", "cli", "commands"}  # the doors; they may know everything


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports_of(path: Path) -> set[str]:
    """Absolute names of all modules that the file imports, wherever in it."""
    package = ["realistic_tta", *path.relative_to(PACKAGE).parent.parts]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names.add(".".join([*base, *([node.module] if node.module else [])]))
    return names


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_parts_import_only_downwards(path: Path) -> None:
    part = part_of(path)
    if part in FREE:
        return
    assert part in MAY_IMPORT, f"say in MAY_IMPORT what {part} may import"
    for name in imports_of(path):
        top, *rest = name.split(".")
        if top == "realistic_tta":
            assert rest
            assert rest[0] in {part} | MAY_IMPORT[part], f"{part} must not import {name}"
        else:
            others = THIRD_PARTY.get(part, set()) | MAY_IMPORT_LATE.get(part, set())
            torch = set() if part in NO_TORCH else {"torch"}
            allowed = {*torch, *others, *sys.stdlib_module_names}
            assert top in allowed, f"{part} must not import {name}"


@pytest.mark.parametrize("part", MAY_IMPORT_LATE)
def test_what_may_be_imported_late_is_imported_inside_functions(part: str) -> None:
    for path in (path for path in FILES if part_of(path) == part):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = {node.module.split(".")[0]}
            else:
                continue
            assert not names & MAY_IMPORT_LATE[part], path.name


def test_ray_is_imported_by_its_engine_alone() -> None:
    """And that by whoever asks for it, when it runs."""
    engine = "realistic_tta.benchmark.ray_engine"
    for path in FILES:
        names = imports_of(path)
        if "ray" in names:
            assert path.stem == "ray_engine"
        if engine in names:
            assert part_of(path) == "commands", path.name
            top = ast.parse(path.read_text()).body
            assert not any(isinstance(n, ast.ImportFrom) and n.module == engine for n in top)


METHOD_MODULES = {"source", "batch_norm", "rectified_tema", "lame", "tent", "eta", "sar"}
METHOD_MODULES |= {"cotta", "adacontrast", "realistic", "domains"}
BUILT_ON = {"domains": {"realistic"}}  # the same method with one more memory


def test_a_method_never_imports_a_sibling() -> None:
    for name in METHOD_MODULES:
        found = {module.split(".")[-1] for module in imports_of(PACKAGE / "methods" / f"{name}.py")}
        assert not found & (METHOD_MODULES - {name} - BUILT_ON.get(name, set())), name


def test_importing_the_library_brings_in_torch_alone() -> None:
    """Nothing that torch itself does not load."""
    program = (
        "import sys, torch; before = {name.split('.')[0] for name in sys.modules};"
        "import realistic_tta; after = {name.split('.')[0] for name in sys.modules};"
        "print(*sorted(after - before))"
    )
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    brought = set(ran.stdout.split()) - set(sys.stdlib_module_names)
    assert brought == {"realistic_tta"}
