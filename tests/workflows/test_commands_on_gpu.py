"""Whole commands of preprocessing on stand-ins for cudf and cupy: the files of the CPU's.

Frames, Dask's graph of them and Merlin's executor are those of a machine with a GPU; what
NVTabular's Categorify calls of cudf is its own affair.
"""

from __future__ import annotations

import pytest
from feature_logs import FEATURES, OPTIONS, feature_log, write_features
from in_process import run
from stand_in import put_gpu_into_workflows

pytestmark = pytest.mark.slow
COUNTED = "encodings: {what: [count, recency], brand: [target, recency]}\n"
COMMANDS = {
    "padded samples of clicks": ("--pad", "--label_column", "clicked"),
    "users of clicks": ("--layout", "users", "--label_column", "clicked"),
}


def files_of(directory):
    """Read what was written; the order of a schema's properties is none."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "schema.pbtxt"
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_log_becomes_the_dataset_of_the_cpu(command, tmp_path, monkeypatch):
    more = COMMANDS[command]
    log = feature_log(users=30, rows=500)
    log.to_parquet(tmp_path / "log.parquet")
    words = ("preprocess", "log", tmp_path / "log.parquet", *OPTIONS, *more)
    features = FEATURES + (COUNTED if "--label_column" in more else "")
    words += ("--features", write_features(tmp_path / "features.yaml", features), "--output_path")
    run(*words, tmp_path / "expected")
    cudf = put_gpu_into_workflows(monkeypatch)
    written = []
    on_device = cudf.DataFrame.to_arrow
    monkeypatch.setattr(
        cudf.DataFrame, "to_arrow", lambda *given, **named: written.append(1) or on_device(*given)
    )
    run(*words, tmp_path / "received")
    expected, received = files_of(tmp_path / "expected"), files_of(tmp_path / "received")
    assert received.keys() == expected.keys() and len(expected) > 6
    assert [name for name in expected if received[name] != expected[name]] == []
    assert written
