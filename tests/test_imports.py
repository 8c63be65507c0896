"""What is imported, and when: nothing heavy before it is needed, nothing of the process changed."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import merlin.dataloader.tensorflow
import merlin.io
import pytest
from small_logs import write_sim_dataset

import merlin_sim as ms
import merlin_sim.models
import merlin_sim.schemas

ALONE = """
import atexit, gc, importlib, logging, os, sys, warnings
gc.disable()  # a fifth of the time of imports
atexit.register(gc.freeze)
schemas, folder, dataset = sys.argv[1].split(","), sys.argv[2], sys.argv[3]

def none_of(*names):
    found = sorted(set(names) & set(sys.modules))
    assert not found, found

before = list(warnings.filters), list(sys.meta_path), dict(os.environ)
import merlin_sim
from merlin_sim import MerlinSimError, SpecError
assert (list(warnings.filters), list(sys.meta_path), dict(os.environ)) == before
assert logging.getLogger("tensorflow").level == logging.NOTSET
none_of("tensorflow", "merlin", "nvtabular", "pandas", "numpy", "pyarrow", "horovod")

from merlin_sim.scripts.main import cli
cli(["--help"], standalone_mode=False)
cli(["data", "spec", "validate", "--help"], standalone_mode=False)
none_of("tensorflow", "pandas", "numpy")
cli(["train", "--help"], standalone_mode=False)
from merlin_sim.schemas.channels import contract_named
assert contract_named("twin").name == "twin"
none_of("tensorflow")
for name in schemas:
    importlib.import_module(f"merlin_sim.schemas.{name}")
none_of("dask", "numba", "tensorflow")
words = ["data", "transcode", "--input", folder, "--output", f"{folder}/made"]
cli(words, standalone_mode=False)
none_of("dask", "nvtabular", "tensorflow")
words = ["train", "--dataset_dir", dataset, "--results_dir", f"{folder}/train.csv/results"]
try:
    cli(words, standalone_mode=False)
except MerlinSimError as error:
    print(error, "tensorflow" in sys.modules)

from merlin_sim.schemas.merlin_import import md
sys.path.insert(0, folder)  # with a cudf that cannot be used
import cudf, numpy as np
print(md.dtype("int32").name, md.dtype(np.dtype("int64")).name, md.dtype(object).name)
try:
    md.int64.to("cudf")
except ValueError:
    print("none of cudf")
import tensorflow as tf
print(md.dtype(tf.int16).name, md.int64.to("tf").name, md.float32.to("tensorflow").name)
print(type(md._dtype_registry.mappings["tf"]).__name__)
before = set(sys.modules)
from merlin_sim.serving import encoder, scorer, servable
heavy = "merlin_sim.models", "merlin.models"
assert not [name for name in set(sys.modules) - before if name.startswith(heavy)]
"""
SPEC = """
feature_spec:
  clicked: {dtype: int8}
  kind: {dtype: int64, cardinality: 3}
source_spec:
  train: [{type: csv, features: [clicked, kind], files: [train.csv]}]
  test: [{type: csv, features: [clicked, kind], files: [test.csv]}]
channel_spec: {label: [clicked], numerical: [], categorical: [kind]}
metadata: {}
"""


@pytest.mark.slow
def test_nothing_heavy_is_imported_before_it_is_needed(tmp_path):
    """Help, contracts, schemas, plain rows and refused results need no TensorFlow, and a server
    no code of models. Merlin's schema classes learn of TensorFlow once somebody wants it.
    """
    (tmp_path / "feature_spec.yaml").write_text(SPEC)
    (tmp_path / "train.csv").write_text("0,1\n1,2\n")
    (tmp_path / "test.csv").write_text("1,0\n")
    (tmp_path / "cudf.py").write_text("")
    dataset = write_sim_dataset(tmp_path / "dataset")
    modules = [module.name for module in pkgutil.iter_modules(merlin_sim.schemas.__path__)]
    words = [sys.executable, "-W", "error::UserWarning:merlin_sim", "-c", ALONE]
    done = subprocess.run(
        [*words, ",".join(modules), tmp_path, dataset], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert any("--global_batch_size" in line for line in said)
    assert (tmp_path / "made" / "train" / "part.0.parquet").exists()
    assert said[-5].endswith("results: cannot be written: Not a directory False")
    assert said[-4:] == [
        "int32 int64 object",
        "none of cudf",
        "int16 int64 float32",
        "DTypeMapping",
    ]


def test_every_name_that_type_checkers_see_is_there():
    for name in set(ms.__all__) - {"__version__"}:
        assert getattr(ms, name).__name__.rpartition(".")[2] == name
        assert name in dir(ms)


def test_a_name_of_merlins_means_merlins():
    assert ms.Dataset is merlin.io.Dataset
    assert issubclass(ms.RowLoader, merlin.dataloader.tensorflow.Loader)
    assert not hasattr(ms, "Block")
    with pytest.raises(AttributeError, match="module 'merlin_sim' has no attribute 'DIN'"):
        _ = ms.DIN


def test_what_goes_wrong_while_a_name_is_made_is_said(monkeypatch):
    def broken(name):
        raise AttributeError("module 'numpy' has no attribute 'object'")

    monkeypatch.setattr(merlin_sim.models, "__getattr__", broken)
    monkeypatch.delattr(ms, "TWINModel", raising=False)
    with pytest.raises(AttributeError, match="module 'numpy' has no attribute 'object'"):
        _ = ms.TWINModel
