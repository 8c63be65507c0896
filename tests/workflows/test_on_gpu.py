"""The operators' GPU paths on stand-ins for cudf and cupy: the tables are those of the CPU.

The stand-ins refuse what cudf and cupy refuse, and are compared with the real ones where these are
installed (they import without a GPU).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os

import numpy as np
import nvtabular as nvt
import pyarrow as pa
import pytest
from feature_logs import FEATURES, OPTIONS, feature_log, write_features
from in_process import run
from merlin.dag.executors import LocalExecutor
from merlin.io import Dataset
from preprocess_runs import all_bytes
from stand_in import differences, load, put_gpu_into_workflows

from merlin_sim import ops
from merlin_sim.workflows import frames as backend

CUPY = load("cupy")
LOG = pa.table(
    {
        "user": ["v", "u", "u", "u", "w", "v", "w", "u"],
        "item": ["a", "c", "b", "b", "d", "c", "a", "d"],
        "country": ["q", "p", "p", "q", "p", "q", "p", "q"],
        "price": [1.0, 2.0, None, 4.0, 3.0, 2.0, 1.0, 3.0],
        "time": [2, 1, 1, 5, 1, 2, 0, 9],
        "clicked": [1, 0, 1, 1, 0, 1, 0, 0],
    }
)


@pytest.mark.parametrize(
    ("split", "order", "label"),
    [
        (None, "item", None),
        (ops.ByTime(2), "log", "clicked"),
        (ops.ByTime(2), "unknown", None),
        (ops.ByUsers(0.5), "unknown", "clicked"),
    ],
)
def test_rows_of_users_are_those_of_the_cpu(split, order, label, tmp_path, monkeypatch):
    ids = ["user", "item", "country"] >> ops.Categorify(out_path=str(tmp_path))
    prices = ["price"] >> nvt.ops.FillMissing(1.0) >> ops.QuantileBuckets(2)
    prices = prices >> ops.Categorify(out_path=str(tmp_path / "price"))
    workflow = nvt.Workflow(
        ids
        + prices
        + ["time", *([label] if label else [])]
        >> ops.GroupHistories(
            user="user", item="item", order="time", label=label, split=split,
            equal_times=order,
        )
    )  # fmt: skip
    workflow.fit(Dataset(LOG.to_pandas(), cpu=True))
    expected = backend.frame_to_arrow(workflow.transform(backend.host_frame(LOG)))
    cudf = put_gpu_into_workflows(monkeypatch)
    frame = cudf.DataFrame.from_arrow(LOG)
    received = LocalExecutor().transform(frame, workflow.output_node, workflow.output_dtypes)
    assert isinstance(received, cudf.DataFrame)
    assert received.to_arrow().to_pydict() == expected.to_pydict()
    assert sorted(map(len, expected["item"].to_pylist())) == [2, 2, 4]


COUNTED = "encodings: {what: [count, recency], brand: [target, recency]}\n"


@pytest.mark.slow
def test_a_log_becomes_the_dataset_of_the_cpu(tmp_path, monkeypatch):
    """What NVTabular's Categorify calls of cudf is its own affair."""
    log = feature_log(users=30, rows=500)
    log.to_parquet(tmp_path / "log.parquet")
    features = write_features(tmp_path / "features.yaml", FEATURES + COUNTED)
    words = ("preprocess", "log", tmp_path / "log.parquet", *OPTIONS, "--pad", "--label_column")
    words += ("clicked", "--features", features, "--output_path")
    run(*words, tmp_path / "expected")
    cudf = put_gpu_into_workflows(monkeypatch)
    written = []
    on_device = cudf.DataFrame.to_arrow
    monkeypatch.setattr(
        cudf.DataFrame, "to_arrow", lambda *given, **named: written.append(1) or on_device(*given)
    )
    run(*words, tmp_path / "received")
    expected, received = (all_bytes(tmp_path / name) for name in ("expected", "received"))
    assert received.keys() == expected.keys() and len(expected) > 6
    # The order of a schema's properties is none.
    assert {name for name in expected if received[name] != expected[name]} <= {"schema.pbtxt"}
    assert written


def test_the_stand_ins_refuse_what_cupy_and_cudf_refuse():
    array = CUPY.arange(3)
    for refused in (
        lambda: CUPY.repeat(array, array),
        lambda: CUPY.repeat(array, np.array([1, 2, 3])),
        lambda: np.asarray(array),
        lambda: array + np.arange(3),
        lambda: array[np.array([0])],
        lambda: list(array),
        lambda: CUPY.concatenate([array, np.arange(3)]),
        lambda: CUPY.bincount(CUPY.zeros(0, CUPY.int64)),
    ):
        with pytest.raises((TypeError, ValueError, IndexError)):
            refused()
    cudf = load("cudf")
    frame = cudf.DataFrame.from_arrow(LOG)
    with pytest.raises(TypeError, match="not iterable"):
        list(frame["user"])
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(frame["user"])
    with pytest.raises(ValueError, match="null values"):
        cudf.Series(pa.array([1, None])).values  # noqa: B018
    with pytest.raises(AttributeError, match="list accessor"):
        frame["user"].list  # noqa: B018


@pytest.fixture(scope="module")
def installed():
    """The real cudf and cupy."""
    try:
        importlib.metadata.version("cudf-cu12")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("cudf is not installed here: make setup DEVICE=gpu")
    before = os.environ.get("RAPIDS_NO_INITIALIZE")
    os.environ["RAPIDS_NO_INITIALIZE"] = "1"
    cudf, cupy = pytest.importorskip("cudf"), pytest.importorskip("cupy")
    if before is None:
        del os.environ["RAPIDS_NO_INITIALIZE"]
    return cudf, cupy


def test_the_stand_ins_have_what_cudf_and_cupy_have(installed):
    cudf, cupy = installed
    from cudf.core.column import as_column, build_column
    from cudf.core.column.lists import ListMethods
    from cudf.core.groupby.groupby import DataFrameGroupBy

    ours = load("cudf")
    found = differences(ours.Series, cudf.Series, "Series")
    found += differences(ours.DataFrame, cudf.DataFrame, "DataFrame")
    found += differences(ours.ListMethods, ListMethods, "ListMethods")
    found += differences(ours.DataFrameGroupBy, DataFrameGroupBy, "DataFrameGroupBy")
    functions = {name: getattr(ours, name) for name in ("concat", "read_parquet")}
    found += differences(type("functions", (), functions), cudf, "cudf")
    columns = {"as_column": as_column, "build_column": build_column}
    wanted = type("columns", (), {name: getattr(ours, name) for name in columns})
    found += differences(wanted, type("real", (), columns), "cudf.core.column")
    found += differences(CUPY.ndarray, cupy.ndarray, "cupy.ndarray")
    names = [name for name, value in vars(CUPY).items() if callable(value) and name[0] != "_"]
    arrays = type("arrays", (), {n: getattr(CUPY, n) for n in names if hasattr(np, n)})
    found += differences(arrays, cupy, "cupy")
    pool = type("pool", (), {"reinitialize": load("rmm").reinitialize})
    found += differences(pool, importlib.import_module("rmm"), "rmm")
    found += differences(CUPY.cuda.memory, cupy.cuda.memory, "cupy.cuda.memory")
    assert found == []
