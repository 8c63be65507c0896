"""``merlin-sim data transcode``: what it does not wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

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
CODE = """
import sys
from merlin_sim.scripts.main import cli
cli(["data", "transcode", "--input", sys.argv[1], "--output", sys.argv[2]], standalone_mode=False)
print(sorted({"dask", "nvtabular", "tensorflow"} & set(sys.modules)))
"""


def test_plain_rows_need_neither_nvtabular_nor_tensorflow(tmp_path):
    (tmp_path / "feature_spec.yaml").write_text(SPEC)
    (tmp_path / "train.csv").write_text("0,1\n1,2\n")
    (tmp_path / "test.csv").write_text("1,0\n")
    words = [sys.executable, "-c", CODE, str(tmp_path), str(tmp_path / "made")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert (tmp_path / "made" / "train" / "part.0.parquet").exists()
