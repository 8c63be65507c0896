"""The names that `import merlin_sim as ms` gives."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import merlin.dataloader.tensorflow
import merlin.io
import pytest

import merlin_sim as ms

STUB = Path(__file__).parents[1] / "__init__.pyi"
HEAVY = ("tensorflow", "merlin", "nvtabular", "pandas", "numpy", "pyarrow", "horovod")
ALONE = f"""
import sys
import merlin_sim
found = [name for name in {HEAVY} if name in sys.modules]
assert not found, found
from merlin_sim import MerlinSimError, SpecError
assert "tensorflow" not in sys.modules
from merlin_sim import SIMModel
assert "tensorflow" in sys.modules and SIMModel is merlin_sim.SIMModel
"""


@pytest.mark.slow
def test_importing_the_package_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [name for name in ms.__all__ if name != "__version__"])
def test_every_name_is_there_under_its_own_name(name):
    assert getattr(ms, name).__name__.rpartition(".")[2] == name
    assert name in dir(ms)


def test_type_checkers_are_told_the_same_names():
    reported = {
        (f"{'.' * node.level}{node.module}", alias.name)
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    wanted = {(module, name) for module, names in ms._NAMES.items() for name in names}
    wanted |= {(module.rpartition(".")[0], name) for name, module in ms._MODULES.items()}
    assert reported == wanted


def test_a_name_of_merlins_means_merlins():
    assert ms.Dataset is merlin.io.Dataset
    assert issubclass(ms.RowLoader, merlin.dataloader.tensorflow.Loader)
    assert not hasattr(ms, "Block")
    with pytest.raises(AttributeError, match="module 'merlin_sim' has no attribute 'DIN'"):
        _ = ms.DIN
