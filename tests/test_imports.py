"""Which package may import which. Imports for type checking and inside functions count too."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import realistic_tta
from realistic_tta import METHODS

PACKAGE = Path(realistic_tta.__file__).parent

# Packages and modules of ours that each may import, besides itself.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "storage": {"errors"},
    "functional": set(),
    "layers": {"functional", "errors"},
    "core": {"layers", "functional", "errors"},
    "methods": {"core", "layers", "functional", "errors"},
    "wrappers": {"core", "functional", "errors"},
    "serving": {"core", "functional", "errors", "storage"},
    "api": {"methods", "wrappers", "serving", "core", "layers", "errors"},
    "data": {"errors", "storage"},
    "models": {"errors", "storage"},
    "benchmark": {"", "api", "methods", "data", "models", "errors", "storage"},
    "report": {
        "benchmark.results",
        "benchmark.exports",
        "benchmark.traces",
        "benchmark.paper_tables",
        "functional.class_diversity",
        "functional.momentum",
        "errors",
        "storage",
    },
}
THIRD_PARTY: dict[str, set[str]] = {
    "errors": set(),
    "storage": {"torch", "safetensors"},
    "data": {"numpy", "PIL", "cv2", "scipy"},
    "models": {"torch", "safetensors"},
    "benchmark": {"torch", "numpy", "pandas", "ray"},
    "report": {"matplotlib"},
}
# Third-party packages that are imported inside functions only, by those who need them.
LATE: dict[str, set[str]] = {
    "storage": {"torch", "safetensors"},
    "models": {"safetensors"},
    "benchmark": {"pandas"},
}
UNBOUND = {"__init__", "__main__", "cli"}  # entry points; they may import everything

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """The module's name below the package, for instance core.batch; a package is its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Absolute names of all modules that the file imports, wherever in it."""
    package = ["realistic_tta", *path.relative_to(PACKAGE).parent.parts]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            below = {f"{module}.{alias.name}" for alias in node.names}
            modules = {each for each in below if own_name(each) in MODULES}
            names |= modules
            if len(modules) < len(below):
                names.add(module)
    return frozenset(names)


def own_name(module: str) -> str | None:
    """The name below our package; empty for the package itself, None for others."""
    top, _, rest = module.partition(".")
    return rest if top == "realistic_tta" else None


def own_imports(path: Path) -> set[str]:
    return {name for each in imports_of(path) if (name := own_name(each)) is not None}


def matches(name: str, allowed: str) -> bool:
    return name == allowed or (bool(allowed) and name.startswith(f"{allowed}."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_imports_only_those_below_it(path: Path) -> None:
    package = package_of(path)
    if package in UNBOUND:
        return
    assert package in MAY_IMPORT, f"say in MAY_IMPORT what {package} may import"
    for name in own_imports(path):
        allowed = {package} | MAY_IMPORT[package]
        assert any(matches(name, each) for each in allowed), f"{package} must not import {name}"
    third_party = {each.split(".")[0] for each in imports_of(path)} - {"realistic_tta"}
    surplus = third_party - THIRD_PARTY.get(package, {"torch"}) - set(sys.stdlib_module_names)
    assert not surplus, f"{package} must not import {surplus}"


def test_the_table_names_only_packages_that_exist() -> None:
    assert set(MAY_IMPORT) | UNBOUND == {package_of(path) for path in FILES}
    for allowed in MAY_IMPORT.values():
        assert all(name in MODULES for name in allowed)


def test_no_module_imports_itself_by_a_detour() -> None:
    """Not even for type checking or inside a function."""
    graph = {name: own_imports(path) - {name} for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_a_cycle_would_be_found() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"c"}, "c": {"a"}}).prepare()
    assert len(MODULES) > 100
    assert "core.batch" in own_imports(MODULES["core.adapted_model"])


@pytest.mark.parametrize("method", METHODS)
def test_a_method_never_imports_another_one(method: str) -> None:
    """One file per method, named like it; what they share is in methods/_training or below."""
    others = {f"methods.{name}" for name in METHODS if name != method} | {"methods.registry"}
    assert not own_imports(MODULES[f"methods.{method}"]) & others


def test_the_folder_of_methods_is_a_list_of_methods() -> None:
    files = {path.stem for path in (PACKAGE / "methods").glob("*.py")}
    assert files == {*METHODS, "registry", "__init__"}


def test_parts_of_training_import_no_method() -> None:
    methods = {f"methods.{name}" for name in METHODS} | {"methods.registry"}
    for name, path in MODULES.items():
        if name.startswith("methods._training"):
            assert not own_imports(path) & methods, name


def test_a_report_needs_results_only() -> None:
    """Whatever its modules import reaches neither a method nor a model."""
    reached = {name for name in MODULES if name.split(".")[0] == "report"}
    while more := {each for name in reached for each in own_imports(MODULES[name])} - reached:
        reached |= more
    packages = {name.split(".")[0] for name in reached}
    assert packages <= {"report", "benchmark", "functional", "errors", "storage"}


@pytest.mark.parametrize("package", LATE)
def test_optional_packages_are_imported_inside_functions(package: str) -> None:
    for path in (path for path in FILES if package_of(path) == package):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = {node.module.split(".")[0]}
            else:
                continue
            assert not names & LATE[package], path.name


def test_ray_is_imported_by_its_engine_only() -> None:
    """And the engine by the command line, when it runs."""
    for path in FILES:
        if "ray" in imports_of(path):
            assert path.stem == "ray_engine"
        if "benchmark.ray_engine" in own_imports(path):
            assert package_of(path) == "cli", path.name
            top = ast.parse(path.read_text()).body
            modules = [node.module for node in top if isinstance(node, ast.ImportFrom)]
            assert "realistic_tta.benchmark.ray_engine" not in modules


def brought_by(module: str) -> set[str]:
    """Top-level names, beside the standard library, that an import loads after torch."""
    program = (
        "import sys, torch; before = {name.split('.')[0] for name in sys.modules};"
        f"import {module}; after = {{name.split('.')[0] for name in sys.modules}};"
        "print(*sorted(after - before))"
    )
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(ran.stdout.split()) - set(sys.stdlib_module_names)


def test_importing_the_library_loads_torch_alone() -> None:
    assert brought_by("realistic_tta") == {"realistic_tta"}
