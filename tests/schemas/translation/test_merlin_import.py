"""Merlin's schema classes without TensorFlow; Merlin whole, once somebody wants it."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import merlin_sim.schemas


def run(code):
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:merlin_sim", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


MODULES = [module.name for module in pkgutil.iter_modules(merlin_sim.schemas.__path__)]


@pytest.mark.slow
def test_no_schema_module_imports_tensorflow():
    """Each alone, in a process forked for it: the order of imports must not matter."""
    out = run(
        "import os, sys, importlib\n"
        f"for name in {MODULES!r}:\n"
        "    if os.fork() == 0:\n"
        "        importlib.import_module(f'merlin_sim.schemas.{name}')\n"
        "        print(name, [m for m in ('tensorflow', 'dask', 'numba') if m in sys.modules])\n"
        "        sys.stdout.flush()\n"
        "        os._exit(0)\n"
        "    assert os.wait()[1] == 0\n"
    )
    assert out.splitlines() == [f"{name} []" for name in MODULES]


@pytest.mark.slow
def test_tensorflows_dtypes_are_known_once_tensorflow_is_there():
    out = run(
        "from merlin_sim.schemas.translation.merlin_import import md\n"
        "before = md.dtype('int32').name\n"
        "import tensorflow as tf\n"
        "print(before, md.dtype(tf.int16).name, md.int64.to('tf').name, "
        "md.float32.to('tensorflow').name)\n"
        "print(type(md._dtype_registry.mappings['tf']).__name__)"
    )
    assert out.split() == ["int32", "int16", "int64", "float32", "DTypeMapping"]
