from __future__ import annotations

import numpy as np
import pytest
from merlin.schema import ColumnSchema, Schema

from merlin_sim.dataloader.arrow_columns import Column
from merlin_sim.dataloader.row_check import DataError, RowCheck
from merlin_sim.dataloader.stored_rows import Part

CHANNELS = {
    "items": "positive_history",
    "categories": "positive_history",
    "intervals": "history_time_intervals",
    "other_items": "negative_history",
    "other_categories": "negative_history",
}


WHERE = Part("part.0.parquet", 0, 100, 5).where


def check(**lengths):
    """Check five rows whose histories have the given lengths, by column."""
    columns = {name: lengths.get(name, [1, 0, 2, 3, 1]) for name in CHANNELS}
    schema = Schema(
        [
            ColumnSchema(name, tags=[tag], dtype=np.int64, is_list=True)
            for name, tag in CHANNELS.items()
        ]
    )
    RowCheck(schema).lengths({name: np.array(found) for name, found in columns.items()}, WHERE)


def test_histories_of_a_channel_are_equally_long():
    check()
    other = [2, 2, 2, 2, 2]
    check(other_items=other, other_categories=other)


@pytest.mark.parametrize("name, first", [("categories", "items"), ("intervals", "items")])
def test_a_history_of_another_length_is_refused_with_its_row(name, first):
    message = rf"part.0.parquet, row 103: {first} and {name} should be equally long.*: 2 and 4"
    with pytest.raises(DataError, match=message):
        check(**{name: [1, 0, 4, 1, 1]})


def test_negative_histories_are_compared_with_each_other():
    with pytest.raises(DataError, match="row 101: other_items and other_categories"):
        check(other_categories=[3, 0, 2, 3, 1])


def test_a_table_of_one_row_has_the_id_0_alone():
    domain = {"domain": {"min": 0, "max": 0, "name": "constant"}}
    column = ColumnSchema("constant", tags=["categorical"], dtype=np.int64, properties=domain)
    constant = Column(np.array([0, 0, 1]))
    with pytest.raises(DataError, match=r"row 103: column constant holds an id outside 0 to 0.*1"):
        RowCheck(Schema([column]))("constant", constant, WHERE)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e300, -3.5e38])
def test_numbers_that_are_not_finite_in_32_bits_are_refused(wrong):
    check = RowCheck(Schema([ColumnSchema("price", dtype=np.float64)]))
    largest = float(np.finfo(np.float32).max)
    good = [-largest, 0.5, largest]
    check("price", Column(np.array(good)), WHERE)
    check("price", Column(np.float32(good)), WHERE)
    with pytest.raises(DataError, match="row 102: column price holds a number that is not finite"):
        check("price", Column(np.array([0.5, wrong])), WHERE)
