"""The top folders: which may import which, and that no imports run in a circle.

Every import counts: those inside functions and those for type checkers alone, too.
"""

from __future__ import annotations

import ast
import runpy
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "merlin_sim"

# Folder -> the folders that it may import; the layers of docs/design.md, bottom up.
MAY_IMPORT = {
    "foundation": set(),
    "schemas": {"foundation"},
    "parallel": {"foundation"},
    "dataloader": {"foundation", "schemas"},
    "workflows": {"foundation", "schemas", "dataloader"},
    "models": {"foundation", "schemas", "parallel", "dataloader"},
    "training": {"foundation", "schemas", "parallel", "dataloader", "models"},
    "serving": {
        "foundation", "schemas", "parallel", "dataloader", "workflows", "models", "training",
    },
    "scripts": {
        "foundation", "schemas", "parallel", "workflows", "models", "training", "serving",
    },
}  # fmt: skip


def top_of(module: str) -> str:
    return module.split(".")[0]


def folders() -> list[Path]:
    return [
        folder
        for top in MAY_IMPORT
        for folder in [ROOT / top, *(ROOT / top).rglob("*")]
        if folder.is_dir() and any(folder.glob("*.py"))
    ]


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(file): file for folder in folders() for file in folder.glob("*.py")}


@cache
def imports(module: str) -> set[str]:
    """The library's modules that a module imports, by their names below the package."""
    file = MODULES[module]
    here = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".", 1)[1] for name in node.names if is_ours(name.name)}
        elif isinstance(node, ast.ImportFrom) and (node.level or is_ours(node.module or "")):
            above = here[: len(here) - node.level + 1] if node.level else []
            named = (node.module or "").split(".")[0 if node.level else 1 :]
            base = ".".join([*above, *filter(None, named)])
            for name in node.names:
                member = f"{base}.{name.name}" if base else name.name
                found.add(member if member in MODULES else base)
    return found & MODULES.keys()


def is_ours(name: str) -> bool:
    return name.startswith(f"{PACKAGE}.")


@pytest.mark.slow
def test_a_folder_imports_only_folders_below_it():
    wrong = [
        f"{module} imports {imported}"
        for module in MODULES
        for imported in imports(module)
        if imported.split(".")[0] not in {*MAY_IMPORT[top_of(module)], top_of(module)}
    ]
    assert not wrong
    TopologicalSorter(MAY_IMPORT).prepare()  # raises CycleError where one stands on itself
    assert {folder.relative_to(ROOT).parts[0] for folder in folders()} == set(MAY_IMPORT)


@pytest.mark.slow
def test_no_imports_run_in_a_circle_between_files_or_folders():
    files = {module: imports(module) for module in MODULES}
    between: dict[str, set[str]] = {}
    for module, imported in files.items():
        names = {folder_of(found) for found in imported if not is_package(found)}
        between.setdefault(folder_of(module), set()).update(names - {folder_of(module)})
    for graph in (files, between):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(" imports ".join(reversed(error.args[1])))
    assert "training.runs.run" in files["scripts.options.run_options"]  # in a function
    assert "schemas.feature_spec" in files["schemas.spec_file"]  # at the top


def folder_of(module: str) -> str:
    """The folder of a module."""
    return str(MODULES[module].parent.relative_to(ROOT))


def is_package(module: str) -> bool:
    """Whether it is a folder's own file: names of the folder, which what is in it may import."""
    return MODULES[module].name == "__init__.py"


def test_the_package_holds_every_folder_of_code(monkeypatch):
    built: dict[str, list[str]] = {}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", built.update)
    runpy.run_path("setup.py")
    tree = [".".join([PACKAGE, *folder.relative_to(ROOT).parts]) for folder in folders()]
    assert sorted(built["packages"]) == sorted([PACKAGE, *tree])
