"""What is the same for all operators, and each one's table worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from merlin.schema import Schema
from nvtabular import ColumnSelector

from merlin_sim.foundation.exceptions import UnfitNumberError
from merlin_sim.schemas.translation.merlin_schema import to_merlin_schema
from merlin_sim.workflows.behaviour.behaviour_columns import BehaviourColumns
from merlin_sim.workflows.behaviour.dataset_spec import dataset_spec
from merlin_sim.workflows.behaviour.rules import SampleRules
from merlin_sim.workflows.engine import backend
from merlin_sim.workflows.operators.contract_ids import ContractIds
from merlin_sim.workflows.operators.draw_negatives import DrawNegatives
from merlin_sim.workflows.operators.emit_dataset import EmitDataset
from merlin_sim.workflows.operators.explode_histories import ExplodeHistories
from merlin_sim.workflows.operators.group_histories import GroupHistories
from merlin_sim.workflows.operators.log_numbers import LogNumbers
from merlin_sim.workflows.operators.look_up_item_features import LookUpItemFeatures
from merlin_sim.workflows.operators.make_samples import MakeSamples

COLUMNS = BehaviourColumns("user", "item", "time", ("country",), ("cat",), steady=("country",))


@pytest.fixture
def schema():
    sizes = {"user": 3, "country": 2, "item": 4, "cat": 3}
    return to_merlin_schema(dataset_spec(COLUMNS, sizes, 4, {}))


def lists(column) -> list:
    return [list(map(int, ids)) for ids in column]


HISTORIES = pd.DataFrame(
    {"user": [1, 2, 3], "country": [1, 2, 1], "item": [[1, 2, 3], [4], [2, 2, 1, 4, 3]]}
)


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


def test_prefixes():
    train = ExplodeHistories(COLUMNS, "train", longest=2).transform(None, HISTORIES)
    assert train["user"].tolist() == [1, 3, 3, 3]
    assert train["country"].tolist() == [1, 1, 1, 1]
    assert train["item_trgt"].tolist() == [2, 2, 1, 4]
    assert lists(train["item_pos"]) == [[1], [2], [2, 2], [2, 1]]
    assert train["position"].tolist() == [1, 1, 2, 3]
    test = ExplodeHistories(COLUMNS, "test", longest=2).transform(None, HISTORIES)
    assert test["item_trgt"].tolist() == [3, 4, 3]
    assert lists(test["item_pos"]) == [[1, 2], [], [1, 4]]
    with pytest.raises(ValueError, match="mapping"):
        ExplodeHistories(COLUMNS, "validation")


def test_twins_and_negatives(items):
    prefixes = ExplodeHistories(COLUMNS, "train").transform(None, HISTORIES)
    drawn = DrawNegatives(COLUMNS, items, seed=1).transform(None, prefixes)
    assert sorted(drawn["label"]) == [0] * 4 + [1] * 4
    assert drawn["label"].dtype == np.int8
    for label in (0, 1):
        side = drawn[drawn["label"] == label]
        assert sorted(map(str, lists(side["item_pos"]))) == sorted(
            map(str, lists(prefixes["item_pos"]))
        )
    assert list(map(len, drawn["item_neg"])) == list(map(len, drawn["item_pos"]))


def test_features_are_looked_up(items):
    rows = pd.DataFrame(
        {"item_trgt": [4, 0], "item_pos": [[1, 2], []], "item_neg": [[3, 3], []], "user": [7, 8]}
    )
    found = LookUpItemFeatures(COLUMNS, items).transform(None, rows)
    assert found["cat_trgt"].tolist() == [3, 0]
    assert lists(found["cat_pos"]) == [[1, 2], []]
    assert lists(found["cat_neg"]) == [[1, 1], []]
    assert found["user"].tolist() == [7, 8]


def whole_table(items, mapping="train"):
    table = ExplodeHistories(COLUMNS, mapping).transform(None, HISTORIES)
    table = DrawNegatives(COLUMNS, items, seed=1).transform(None, table)
    return LookUpItemFeatures(COLUMNS, items).transform(None, table)


def test_the_dataset_has_its_columns_in_order_and_padded_on_request(items, schema):
    table = whole_table(items)
    emitted = EmitDataset(schema).transform(None, table)
    assert tuple(emitted) == COLUMNS.output == tuple(schema.column_names)
    padded = EmitDataset(schema, pad=True).transform(None, table)
    for name in ("item_pos", "cat_neg"):
        expected = [[0] * (4 - len(ids)) + ids for ids in lists(emitted[name])]
        assert lists(padded[name]) == expected


def test_one_operator_does_what_its_steps_do(items):
    rules = SampleRules(max_sequence_length=2, seed=1)
    made = MakeSamples(COLUMNS, items, rules, "train").transform(None, HISTORIES)
    table = ExplodeHistories(COLUMNS, "train", longest=2).transform(None, HISTORIES)
    for step in (DrawNegatives(COLUMNS, items, 1), LookUpItemFeatures(COLUMNS, items)):
        table = step.transform(None, table)
    assert set(made) == set(COLUMNS.output)
    assert backend.frame_to_arrow(made) == backend.frame_to_arrow(table)


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


def test_tables_without_rows_keep_their_columns(items, schema):
    table = HISTORIES.iloc[:0].assign(item=backend.ArrowLists(pa.array([], pa.list_(pa.int64()))))
    for operator in (
        ExplodeHistories(COLUMNS, "train"),
        DrawNegatives(COLUMNS, items, 1),
        LookUpItemFeatures(COLUMNS, items),
        EmitDataset(schema),
    ):
        table = operator.transform(None, table)
    assert tuple(table) == COLUMNS.output
    assert len(table) == 0


def test_an_operator_says_what_it_misses(items, schema):
    for operator in (
        GroupHistories(COLUMNS),
        ExplodeHistories(COLUMNS, "train"),
        DrawNegatives(COLUMNS, items, 1),
        LookUpItemFeatures(COLUMNS, items),
        EmitDataset(schema),
    ):
        with pytest.raises(ValueError, match=f"{type(operator).__name__} needs the columns"):
            operator.compute_output_schema(Schema(["something"]), None)


@pytest.mark.parametrize("number", [-3.0, -5.0, np.inf, -np.inf])
def test_a_number_without_a_logarithm_is_refused(number):
    """-inf became the least float32 there is, and a number below -3 a missing one."""
    numbers = pd.DataFrame({"clicks": [1.0, np.nan, number]})
    with pytest.raises(UnfitNumberError, match=f"'clicks': expected .* Received: {number:g}"):
        LogNumbers().transform(ColumnSelector(["clicks"]), numbers)
