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
from stand_in import differences, load, put_gpu_into

from merlin_sim.foundation.row_numbers import for_each_element
from merlin_sim.schemas.translation.merlin_schema import to_merlin_schema
from merlin_sim.workflows.behaviour.behaviour_columns import MOMENT, SECONDS, BehaviourColumns
from merlin_sim.workflows.behaviour.dataset_spec import dataset_spec
from merlin_sim.workflows.behaviour.rules import SampleRules
from merlin_sim.workflows.behaviour.split import PART, Split
from merlin_sim.workflows.engine import backend
from merlin_sim.workflows.features.event_counts import EventCounts
from merlin_sim.workflows.features.feature_file import features_from_plain
from merlin_sim.workflows.features.fitted_numbers import FittedNumbers
from merlin_sim.workflows.operators.contract_ids import ContractIds
from merlin_sim.workflows.operators.draw_negatives import DrawNegatives
from merlin_sim.workflows.operators.emit_dataset import EmitDataset
from merlin_sim.workflows.operators.encode_by_time import EncodeByTime
from merlin_sim.workflows.operators.explode_histories import ExplodeHistories
from merlin_sim.workflows.operators.fitted_features import FittedFeatures
from merlin_sim.workflows.operators.group_histories import GroupHistories
from merlin_sim.workflows.operators.hash_crosses import HashCrosses
from merlin_sim.workflows.operators.look_up_item_features import LookUpItemFeatures
from merlin_sim.workflows.vocabularies.vocabulary import Vocabularies

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
MOMENTS = [[0, 1, 1], [1], [0, 1, 1, 2, 2], [3, 3]]
"""When each of them was; some at one time."""


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


@pytest.mark.parametrize("mapping", ["train", "test"])
@pytest.mark.parametrize("pad", [False, True])
def test_samples_are_those_of_the_cpu(gpu, items, mapping, pad):
    sizes = {"user": 4, "country": 2, "item": 4, "cat": 3}
    operators = [
        ExplodeHistories(COLUMNS, mapping, longest=3),
        DrawNegatives(COLUMNS, items, seed=5),
        LookUpItemFeatures(COLUMNS, items),
        EmitDataset(to_merlin_schema(dataset_spec(COLUMNS, sizes, 3, {})), pad),
    ]
    expected = through(HISTORIES, *operators)
    gpu()
    assert through(HISTORIES, *operators) == expected
    assert len(expected["label"]) > 4


@pytest.mark.parametrize("twins", [0, 1, 3])
@pytest.mark.parametrize("mapping", ["train", "validation", "test"])
def test_samples_with_labels_and_parts_are_those_of_the_cpu(gpu, items, mapping, twins):
    split = Split(test_from="4", validation_from="3")
    operators = [
        ExplodeHistories(LABELLED, mapping, split=split),
        DrawNegatives(LABELLED, items, seed=5, twins=twins),
    ]
    beside = {"clicked": [[1, 0, 1], [1], [1, 1, 0, 0, 1], [0, 1]]}
    beside[PART] = [[0, 1, 2], [0], [0, 0, 1, 2, 2], [0, 1]]
    beside[MOMENT] = MOMENTS
    table = HISTORIES
    for name, column in beside.items():
        table = table.append_column(name, pa.array(column))
    expected = through(table, *operators)
    gpu()
    assert through(table, *operators) == expected
    assert len(expected["label"]) >= (1 if twins == 0 else 2)


@pytest.fixture
def featured(tmp_path):
    """A log with numbers of everybody, lists, vectors, crosses and what came before."""
    plain = {
        "features": {
            "age": {"type": "number", "of": "user", "operators": ["Normalize"]},
            "place": {
                "type": "number", "of": "interaction", "lags": [1],
                "operators": [{"FillMissing": {"fill_val": 2}}, {"Clip": {"max_value": 1}}],
            },
            "price": {"type": "number", "of": "item"},
            "look": {"type": "vector", "of": "item", "size": 2},
            "genres": {"type": "list", "of": "item", "longest": 2},
        },
        "time_intervals": "seconds",
        "encodings": {"item": ["count"], "cat": ["target"]},
        "crosses": {"pair": {"columns": ["country", "cat"], "buckets": 9}},
    }  # fmt: skip
    features = features_from_plain(plain, "test")
    columns = replace(LABELLED, features=features, steady=("country", "age"))
    vocabularies = Vocabularies(tmp_path / "featured")
    numbers = pa.array([0.5, -1, 2, 0], pa.float32())
    vocabularies.add_items(
        "item",
        pa.array(["a", "b", "c", "d"]),
        pa.array([4, 3, 2, 1]),
        {"cat": pa.array(["x", "y", "x", "z"])},
        {
            "price": numbers,
            "look": pa.array([[1.0, 0], [0, 1], [0, 0], [0.6, 0.8]], pa.list_(pa.float32(), 2)),
            "genres": pa.array([[1, 2], [], [3], [2]], pa.list_(pa.int64())),
            "item_count": numbers,
            "cat_target": numbers,
        },
    )
    fitted = FittedNumbers(
        {"age": {"0": {"means": 3.0, "stds": 2.0}}, "place": {}, "price": {}}, 0.4
    )
    for name, size in (("item", 4), ("cat", 3)):
        ids, taken = np.arange(20) % size + 1, np.arange(20) % 3 % 2
        EventCounts(tmp_path / "events" / name).write(ids, np.arange(20.0) / 4, taken, size)
    return columns, vocabularies.items("item"), fitted, tmp_path / "events"


def test_numbers_are_grouped_as_on_the_cpu(gpu, featured):
    columns, _, fitted, _ = featured
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


@pytest.mark.parametrize("pad", [False, True])
def test_numbers_of_samples_are_those_of_the_cpu(gpu, featured, pad):
    columns, items, fitted, events = featured
    table = HISTORIES.append_column("clicked", pa.array([[1, 0, 1], [1], [1, 1, 0, 0, 1], [0, 1]]))
    lengths = [3, 1, 5, 2]
    table = table.append_column(MOMENT, pa.array(MOMENTS))
    table = table.append_column("age", pa.array([0.5, 1.5, 2.5, 3.5]))
    for name in ("place", SECONDS):
        table = table.append_column(name, pa.array([[n / 2 for n in range(k)] for k in lengths]))
    sizes = {"user": 4, "country": 2, "item": 4, "cat": 3, "genres": 3}
    explode = ExplodeHistories(columns, "train", longest=3)
    draw = DrawNegatives(columns, items, seed=5, twins=1)
    spec = dataset_spec(columns, sizes, 3, {})
    emit = EmitDataset(to_merlin_schema(spec), pad)
    steps = [explode, draw, LookUpItemFeatures(columns, items), HashCrosses(columns), emit]
    expected = through(table, *steps)
    assert set(spec.feature_spec) == set(expected) and len(expected["label"]) > 4
    assert expected["price_trgt"] == expected["item_count_trgt"]
    gpu()
    assert through(table, *steps) == expected


def test_what_came_before_is_counted_as_on_the_cpu(gpu, featured):
    columns, items, fitted, events = featured
    targets = {"item_trgt": [1, 2, 3, 4], "cat_trgt": [1, 2, 3, 1]}
    table = pa.table({**targets, SECONDS: [0.0, 1.25, 2.5, 9.0]})
    expected = through(table, EncodeByTime(columns, items, events, fitted))
    assert expected["item_count_trgt"][0] == 0 and expected["item_count_trgt"][3] > 1
    gpu()
    assert through(table, EncodeByTime(columns, items, events, fitted)) == expected


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


def test_a_slice_of_lists_is_taken_as_the_slice_it_is(gpu):
    cudf = gpu()
    column = cudf.DataFrame.from_arrow(HISTORIES).iloc[1:3]["item"]
    assert len(column.list.leaves) == 11  # cudf gives those of the whole column
    values, offsets = backend.lists_of(column)
    assert (values.get().tolist(), offsets.get().tolist()) == ([4, 2, 2, 1, 4, 3], [0, 1, 6])


@pytest.mark.parametrize("lengths", [[], [0], [3], [0, 2, 0, 0, 1, 0], [1, 1]])
def test_values_are_repeated_without_an_array_of_repeats(lengths):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = np.arange(10, 10 + len(lengths))
    repeated = for_each_element(CUPY.array(values), CUPY.array(offsets), CUPY)
    assert repeated.get().tolist() == np.repeat(values, lengths).tolist()


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
