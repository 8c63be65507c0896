"""What is the same for all operators, and each one's table worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from merlin.schema import ColumnSchema, Schema
from nvtabular import ColumnSelector

from merlin_sim.foundation.exceptions import UnfitNumberError
from merlin_sim.workflows.behaviour.behaviour_columns import BehaviourColumns
from merlin_sim.workflows.behaviour.rules import SampleRules
from merlin_sim.workflows.engine import backend
from merlin_sim.workflows.operators.contract_ids import ContractIds
from merlin_sim.workflows.operators.emit_dataset import EmitDataset
from merlin_sim.workflows.operators.group_histories import GroupHistories
from merlin_sim.workflows.operators.log_numbers import LogNumbers

COLUMNS = BehaviourColumns("user", "item", "time", ("country",), ("cat",), steady=("country",))
SCHEMA = Schema([ColumnSchema("thing", dtype="int64"), ColumnSchema("weight", dtype="float32")])


def lists(column) -> list:
    return [list(map(int, ids)) for ids in column]


@pytest.mark.parametrize(
    ("order", "items"), [("item", ["10", "10", "9", "b"]), ("log", ["10", "9", "10", "b"])]
)
def test_histories_sort_by_time_then_as_the_rules_say(order, items):
    log = pd.DataFrame(
        {
            "time": [2, 1, 1, 5, 1],
            "user": ["v", "u", "u", "u", "u"],
            "item": ["a", "10", "9", "b", "10"],
            "country": ["q", "p", "p", "q", "p"],
        }
    )
    grouped = GroupHistories(COLUMNS, SampleRules(equal_times=order)).transform(None, log)
    assert grouped["user"].tolist() == ["u", "v"]
    assert [list(found) for found in grouped["item"]] == [items, ["a"]]
    assert grouped["country"].tolist() == ["q", "q"]


@pytest.mark.parametrize("kind", ["objects", "arrow", "sliced"])
def test_lists_of_any_make_are_taken(kind):
    ids = [[9], [3, 5], [2, 1], [4, 2]]
    if kind == "objects":
        column = pd.Series(ids[1:])
    else:
        array = pa.array(ids if kind == "sliced" else ids[1:])
        array = array.slice(1) if kind == "sliced" else array
        column = pd.Series(backend.ArrowLists(array))
    codes = pd.DataFrame({"item": column})
    shifted = ContractIds().transform(ColumnSelector(["item"]), codes)
    assert lists(shifted["item"]) == [[1, 3], [], [2]]


def test_columns_are_emitted_in_the_order_and_types_of_the_schema():
    rows = pd.DataFrame({"weight": [0.5, 2.0], "other": [1, 2], "thing": np.array([3, 4], np.int8)})
    emitted = EmitDataset(SCHEMA).transform(None, rows)
    assert list(emitted) == ["thing", "weight"]
    assert emitted.dtypes.map(str).tolist() == ["int64", "float32"]
    assert emitted.to_numpy().tolist() == [[3, 0.5], [4, 2]]


def test_tables_without_rows_keep_their_columns():
    log = pa.table({name: pa.array([], pa.int64()) for name in ("user", "country", "item", "time")})
    histories = GroupHistories(COLUMNS).transform(None, backend.frame_from_arrow(log))
    assert set(histories) == {"user", "country", "item"} and len(histories) == 0
    rows = pd.DataFrame({"thing": np.array([], np.int32), "weight": np.array([], np.float64)})
    emitted = EmitDataset(SCHEMA).transform(None, rows)
    assert list(emitted) == ["thing", "weight"] and len(emitted) == 0


@pytest.mark.parametrize("operator", [GroupHistories(COLUMNS), EmitDataset(SCHEMA)])
def test_an_operator_says_what_it_misses(operator):
    with pytest.raises(ValueError, match=f"{type(operator).__name__} needs the columns"):
        operator.compute_output_schema(Schema(["something"]), None)


@pytest.mark.parametrize("number", [-3.0, -5.0, np.inf, -np.inf])
def test_a_number_without_a_logarithm_is_refused(number):
    """-inf became the least float32 there is, and a number below -3 a missing one."""
    numbers = pd.DataFrame({"clicks": [1.0, np.nan, number]})
    with pytest.raises(UnfitNumberError, match=f"'clicks': expected .* Received: {number:g}"):
        LogNumbers().transform(ColumnSelector(["clicks"]), numbers)
