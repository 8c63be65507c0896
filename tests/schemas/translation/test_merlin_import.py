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
        timeout=280,
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
        "from merlin_sim.schemas.merlin_import import md\n"
        "before = md.dtype('int32').name\n"
        "import tensorflow as tf\n"
        "print(before, md.dtype(tf.int16).name, md.int64.to('tf').name, "
        "md.float32.to('tensorflow').name)\n"
        "print(type(md._dtype_registry.mappings['tf']).__name__)"
    )
    assert out.split() == ["int32", "int16", "int64", "float32", "DTypeMapping"]


@pytest.mark.slow
def test_a_cudf_that_somebody_imported_and_merlin_does_not_use_is_left_out(tmp_path):
    """As where a command tried whether cudf can be used, and it cannot."""
    (tmp_path / "cudf.py").write_text("")
    out = run(
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from merlin_sim.schemas.merlin_import import md\n"
        "import cudf, numpy as np\n"
        "print(md.dtype('int32').name, md.dtype(np.dtype('int64')).name, md.dtype(object).name)\n"
        "try:\n"
        "    md.int64.to('cudf')\n"
        "except ValueError:\n"
        "    print('none of cudf')"
    )
    assert out == "int32 int64 object\nnone of cudf\n"
