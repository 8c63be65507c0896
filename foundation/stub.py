"""What an ``__init__.pyi`` imports, which the ``__init__.py`` beside it gives when asked."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .process_wide import hide_unusable_gpu


def imports_of(init: str) -> dict[str, str]:
    """Return the module of each name, as ``from`` has it."""
    stub = ast.parse(Path(init).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.name: "." * node.level + (node.module or "")
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def import_name(name: str, modules: dict[str, str], package: str) -> Any:
    """Import one of these names; it may be a module's."""
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    hide_unusable_gpu()
    module = import_module(modules[name], package)
    try:
        return getattr(module, name)
    except AttributeError:
        is_package = hasattr(module, "__path__")
        if not is_package or find_spec(f"{module.__name__}.{name}") is None:
            raise  # what went wrong while a module made the name
    return import_module(f"{module.__name__}.{name}")
