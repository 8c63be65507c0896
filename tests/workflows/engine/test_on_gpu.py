"""The operators' GPU paths on stand-ins for cudf and cupy: the tables are those of the CPU.

The stand-ins refuse what cudf and cupy refuse, and are compared with the real ones where these are
installed (they import without a GPU).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from merlin.schema import ColumnSchema, Schema
from stand_in import differences, load, put_gpu_into

from merlin_sim.workflows.behaviour.behaviour_columns import SECONDS, BehaviourColumns
from merlin_sim.workflows.behaviour.rules import SampleRules
from merlin_sim.workflows.behaviour.split import PART, Split
from merlin_sim.workflows.engine import backend
from merlin_sim.workflows.features.feature_file import features_from_plain
from merlin_sim.workflows.features.fitted_numbers import FittedNumbers
from merlin_sim.workflows.operators.contract_ids import ContractIds
from merlin_sim.workflows.operators.emit_dataset import EmitDataset
from merlin_sim.workflows.operators.fitted_features import FittedFeatures
from merlin_sim.workflows.operators.group_histories import GroupHistories

COLUMNS = BehaviourColumns("user", "item", "time", ("country",), ("cat",), steady=("country",))
LABELLED = replace(COLUMNS, label="clicked")
CUPY = load("cupy")
LOG = pa.table(
    {
        "user": ["v", "u", "u", "u", "w", "v", "w", "u"],
        "country": ["q", "p", "p", "q", "p", "q", "p", "q"],
        "item": ["a", "c", "b", "b", "d", "c", "a", "d"],
        "time": [2, 1, 1, 5, 1, 2, 0, 9],
    }
)
HISTORIES = pa.table(
    {
        "user": [1, 2, 3, 4],
        "country": [1, 2, 1, 2],
        "item": pa.array([[1, 2, 3], [4], [2, 2, 1, 4, 3], [3, 1]]),
    }
)


@pytest.fixture
def gpu(monkeypatch):
    return lambda: put_gpu_into(monkeypatch)


def through(table: pa.Table, *operators) -> dict:
    """Send a table through operators, on whatever is in place; give plain lists."""
    frame = backend.frame_from_arrow(table)
    selected = type("Selected", (), {"names": table.column_names})
    for operator in operators:
        frame = operator.transform(selected, frame)
    assert isinstance(frame, pd.DataFrame) == (backend.cudf is None)
    return backend.frame_to_arrow(frame).to_pydict()


@pytest.fixture
def featured():
    """A log's columns with numbers of users and of interactions, and what these were fitted to."""
    plain = {
        "features": {
            "age": {"type": "number", "of": "user", "operators": ["Normalize"]},
            "place": {
                "type": "number", "of": "interaction", "lags": [1],
                "operators": [{"FillMissing": {"fill_val": 2}}, {"Clip": {"max_value": 1}}],
            },
        },
        "time_intervals": "seconds",
    }  # fmt: skip
    features = features_from_plain(plain, "test")
    columns = replace(LABELLED, features=features, steady=("country", "age"))
    return columns, FittedNumbers({"age": {"0": {"means": 3.0, "stds": 2.0}}, "place": {}}, 0.4)


def test_numbers_are_grouped_as_on_the_cpu(gpu, featured):
    columns, fitted = featured
    log = LOG.append_column("clicked", pa.array([1, 0, 1, 1, 0, 1, 0, 0]))
    for name in ("age", "place", SECONDS):
        log = log.append_column(name, pa.array([float(n) for n in range(8)]))
    log = log.set_column(log.column_names.index("place"), "place", pa.array([None, *[1.0] * 7]))
    steps = FittedFeatures(columns, fitted), GroupHistories(columns)
    expected = through(log, *steps)
    assert len(expected["place"]) == 3 and expected["age"][0] == pytest.approx(
        (max(expected[SECONDS][0]) - 3) / 2
    )
    gpu()
    assert through(log, *steps) == expected


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("item", ["b", "c", "b", "d"]),
        ("log", ["c", "b", "b", "d"]),
        ("unknown", None),
    ],
)
def test_histories_are_those_of_the_cpu(gpu, order, first):
    rules = SampleRules(equal_times=order)
    expected = through(LOG, GroupHistories(COLUMNS, rules))
    assert first is None or expected["item"] == [first, ["a", "c"], ["a", "d"]]
    gpu()
    assert through(LOG, GroupHistories(COLUMNS, rules)) == expected


@pytest.mark.parametrize("split", [Split(test_from="2"), Split(test_users=0.5)])
def test_labels_and_parts_are_grouped_as_on_the_cpu(gpu, split):
    log = LOG.append_column("clicked", pa.array([1, 0, 1, 1, 0, 1, 0, 0]))
    group = GroupHistories(LABELLED, SampleRules(equal_times="log"), split)
    ids = ContractIds({"item": ("clicked", PART)})
    expected = through(log, group)
    assert expected["clicked"][0] == [0, 1, 1, 0]
    if split.test_from:
        assert expected[PART] == [[0, 0, 1, 1], [1, 1], [0, 0]]
    codes = pa.table({"item": [[3, 2, 5, 4]], "clicked": [[0, 1, 1, 0]], PART: [[0, 0, 1, 1]]})
    kept = through(codes, ids)
    assert (kept["clicked"], kept[PART]) == ([[0, 1, 0]], [[0, 1, 1]])
    gpu()
    assert through(log, group) == expected
    assert through(codes, ids) == kept


def test_ids_are_those_of_the_cpu(gpu):
    codes = pa.table({"user": [3, 2, 4], "item": pa.array([[3, 5], [2, 1], [4, 2]])})
    expected = through(codes, ContractIds())
    gpu()
    assert through(codes, ContractIds()) == expected


def test_emitted_columns_are_those_of_the_cpu(gpu):
    schema = Schema([ColumnSchema("item", dtype="int64"), ColumnSchema("place", dtype="float32")])
    table = pa.table({"place": [0.5, -1.0], "other": [1, 2], "item": pa.array([3, 4], pa.int8())})
    expected = through(table, EmitDataset(schema))
    assert list(expected) == ["item", "place"]
    gpu()
    assert through(table, EmitDataset(schema)) == expected


def test_a_slice_of_lists_is_taken_as_the_slice_it_is(gpu):
    cudf = gpu()
    column = cudf.DataFrame.from_arrow(HISTORIES).iloc[1:3]["item"]
    assert len(column.list.leaves) == 11  # cudf gives those of the whole column
    values, offsets = backend.lists_of(column)
    assert (values.get().tolist(), offsets.get().tolist()) == ([4, 2, 2, 1, 4, 3], [0, 1, 6])


def test_the_stand_in_for_cupy_refuses_what_cupy_refuses():
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


def test_the_stand_in_for_cudf_refuses_what_cudf_refuses():
    cudf = load("cudf")
    frame = cudf.DataFrame.from_arrow(HISTORIES)
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
